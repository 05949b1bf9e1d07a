"""Bringing a recipe to a fleet: write an app, start and stop a fleet here, run, compare bytes.

``app.py``                writes a Flower app
``local_fleet.py``        a SuperLink and SuperNodes on this machine
``approval.py``           which apps a node runs: those that somebody at the hospital has approved
``forwarding.py``         passes a node's calls on, message by message
``gate.py``               what members of a fleet with TLS reach: a node's own calls, nothing else
``guarded_superlink.py``  a SuperLink that takes runs from its own user only
``keys.py``               certificates and node keys
``membership.py``         admits and revokes: a public key becomes a client number
``hospital.py``           the other side: makes key and policy, runs a SuperNode
``warm.py``               answers messages in copies of itself: imports are paid for once
``warm_call.py``          what a SuperExec starts instead of Flower's program: asks it to
``addresses.py``          where processes listen, and by which names they are reached
``processes.py``          start and stop exactly these processes
``fleet_sheet.py``        what of a fleet runs on this machine
``flower_cli.py``         calls Flower's own commands
``traffic.py``            our ledger against Flower's byte counts
``run_list.py``           which Flower run plays which run folder
``run_watch.py``          how far a run is, read while it is played
``metrics.py``            runs and processes in Prometheus's text format
``monitor.py``            serves that, and /health

Flower's commands are called as programs; only the two that stand before the SuperLink import it.
"""
