"""Bringing a recipe to a fleet: write an app, start and stop a fleet here, run, compare bytes.

``app.py``          writes a Flower app
``keys.py``         certificates and node keys
``flower_cli.py``   calls Flower's own commands
``local_fleet.py``  a SuperLink and SuperNodes on this machine
``processes.py``    starts and stops exactly these processes
``traffic.py``      our ledger against Flower's byte counts

Nothing here imports flwr: its commands are called as programs.
"""
