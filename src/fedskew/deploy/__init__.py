"""Bringing a recipe to a fleet: write an app, start and stop a fleet here, run, compare bytes.

``app.py``                writes a Flower app
``local_fleet.py``        a SuperLink and SuperNodes on this machine
``gate.py``               what members of a fleet with TLS reach: a node's own calls, nothing else
``guarded_superlink.py``  a SuperLink that takes runs from its own user only
``keys.py``               certificates and node keys
``processes.py``          start and stop exactly these processes
``flower_cli.py``         calls Flower's own commands
``traffic.py``            our ledger against Flower's byte counts

Flower's commands are called as programs; only the two that stand before the SuperLink import it.
"""
