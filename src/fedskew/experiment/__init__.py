"""One run: make it, keep it, read it back.

``local``       a recipe on this machine: ``run``
``fleet``       a recipe on a Flower fleet: ``serve`` and ``client_app``
``world``       a recipe's examples, dealt out to clients, and its model
``result``      a finished run and its figures
``history``     a run as it lies on disk, finished or not
``tables``      its tidy tables
``references``  the rows every personalised result is shown with
``schedule``    several runs at once, a core each
"""
