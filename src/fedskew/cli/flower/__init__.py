"""``fedskew flower ...``: a recipe on a fleet, from an empty folder to TLS.

``group.py``     what all of these commands share: the group, its options, how it prints
``fleet.py``     ``new | up | restart | down``
``runs.py``      ``run | stop | log``
``advising.py``  ``advise``
``outcome.py``   what a run that has ended says
``members.py``   at the server ``admit | revoke``, at hospitals ``join | approve``
``watching.py``  ``status | monitor``
"""

from fedskew.cli.flower import advising, fleet, members, runs, watching
from fedskew.cli.flower.group import app

__all__ = ["advising", "app", "fleet", "members", "runs", "watching"]
