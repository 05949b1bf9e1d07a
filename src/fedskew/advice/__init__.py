"""What to switch on: which method suits a federation, what it gives and what it costs.

``adviser``     READ FIRST: ``advise``, and the answer
``subject``     the federation that is asked about: from a recipe, label counts or a run folder
``features``    what it looks like, in numbers
``bank``        what methods gave on many small federations, measured once (``bank.json``)
``nearest``     which of those are most like this one
``forecast``    what to expect of each method, with 90 % intervals
``pilot``       a few real rounds of the best candidates
``candidates``  each method on this federation: its recipe and its price
``costs``       what so many rounds cost here
``budget``      what may be spent
``permits``     what clients agree to, and what they disclose
``judging``     how good the adviser is: each federation of the bank asked about, without itself
``written``     the first choice as a recipe
``wording``     the answer in words
``payload``     the answer as JSON
``terminal``    the answer in the terminal
"""
