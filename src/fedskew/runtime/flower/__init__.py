"""Training on a fleet: the same loop and recipe, clients elsewhere, messages carried by Flower.

``server.py``           what the loop talks to
``exchange.py``         one batch of messages, one outcome each
``registry.py``         client number <-> Flower node
``answers.py``          replies, checked
``superlink_watch.py``  the ServerApp ends with its SuperLink
``client.py``           the ClientApp: answers messages on its own data
``task.py``             what a user brings: data and model
``records.py``          values to and from Flower's records

Only this package imports flwr. ``fedskew.experiment.fleet`` joins it with recipes and run folders.
"""
