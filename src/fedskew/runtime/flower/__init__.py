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
``releasing.py``        label counts with noise, one release for a run
``app_runtime.py``      what the loop talks to where training is an app of somebody else's
``app_seats.py``        who is there, in such an app
``app_letters.py``      its train and evaluate messages, and what replies say
``app_terms.py``        what its author says about a run, and what is kept of metrics
``app_arrays.py``       its model as a flat vector
``disclosing.py``       a mod for its ClientApp: label counts, as far as the node's policy allows
``task.py``             what a user brings: data and model
``records.py``          values to and from Flower's records
``undocumented.py``     all that Flower does not promise and we use
``wire.py``             text and bytes as values, whatever they claim to be

Only this package, the gate before a SuperLink and ``fedskew.experiment.strategy`` import flwr.
``fedskew.experiment.fleet`` and ``strategy`` join it with recipes and run folders.
"""
