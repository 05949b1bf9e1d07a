"""Training on a fleet: the same loop and recipe, clients elsewhere, messages carried by Flower.

``server.py``           what the loop talks to
``exchange.py``         one batch of messages, one outcome each
``registry.py``         client number <-> Flower node
``members.py``          which client a node is, by its key
``answers.py``          replies, checked
``superlink_watch.py``  the ServerApp ends with its SuperLink
``client.py``           the ClientApp: answers messages on its own data
``policy.py``           what a node gives away
``ledger.py``           what it has given away, over all runs and restarts
``task.py``             what a user brings: data and model
``records.py``          values to and from Flower's records

``fedskew.experiment.fleet`` joins it with recipes and run folders.
"""
