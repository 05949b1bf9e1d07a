"""One run: make it, keep it, read it back.

``driver``        plays a run, keeps it, resumes it; wherever it is played
``backend``       where it is played, and one run on its way
``ending``        the end of a run: its model first, then the tests at its clients
``budget``        how long it may go on: bytes or simulated time
``coverage``      of which clients its figures speak
``local``         a recipe on this machine: ``run``
``fleet``         a recipe on a Flower fleet: ``serve`` and ``client_app``
``fleet_server``  its server's side
``strategy``      a recipe in a Flower app of somebody's own: ``fedskew.flower.Strategy``
``app_recipe``    which recipes can be played there
``world``         a recipe's examples, dealt out to clients, and its model
``device``        a model's passes on a graphics processor
``own_split``     a split of the user's own
``run``           one run, finished or not, as it was played or as it lies on disk
``plausible``     whether a run read from a folder hangs together
``figures``       every figure of a run
``tables``        its tidy tables
``notebook``      what runs look like in a notebook
``run_folders``   where runs lie on disk
``references``    the rows every personalised result is shown with
``schedule``      several runs at once, a core each
"""
