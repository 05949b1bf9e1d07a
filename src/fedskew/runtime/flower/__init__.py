"""Training on a fleet: the same loop and recipe, clients elsewhere, messages carried by Flower.

``server.py``           what the loop talks to
``attendance.py``       who is there: nodes join, leave, come back
``silence.py``          who did not say how good a model is, and why
``exchange.py``         one batch of messages, one outcome each
``greetings.py``        hellos under way: nobody waits for a node that does not answer
``registry.py``         client number <-> Flower node
``members.py``          which number a node's key was admitted with
``backoff.py``          when what was refused is asked again
``answers.py``          replies, checked
``tally.py``            messages and bytes, counted
``superlink_watch.py``  the ServerApp ends with its SuperLink
``client.py``           the ClientApp: answers messages on its own data
``policy.py``           what a node gives away, by a file of its own
``ledger.py``           what it has given away
``task.py``             what a user brings: data and model
``records.py``          values to and from Flower's records
``undocumented.py``     all that Flower does not promise and we use
``wire.py``             text and bytes as values, whatever they claim to be

Only this package and the gate before a SuperLink import flwr.
``fedskew.experiment.fleet`` joins it with recipes and run folders.
"""
