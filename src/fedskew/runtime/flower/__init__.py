"""Training on a fleet: the same loop and the same recipe, clients on other machines, messages
carried by Flower.

``server.py``    what the loop talks to            ``client.py``    the ClientApp: answers messages on its own data
``exchange.py``  one batch, one outcome each       ``records.py``   values to and from Flower's records
``registry.py``  client number <-> Flower node     ``task.py``      what a user brings: data and model
``answers.py``   replies, checked                  ``lifeline.py``  the ServerApp ends with its SuperLink

Only this package imports flwr. ``fedskew.experiment.fleet`` joins it with recipes and run folders.
"""
