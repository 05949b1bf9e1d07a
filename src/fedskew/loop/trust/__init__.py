"""Selection that cannot be gamed: what clients say is checked before a rule sees it (``[trust]``).

docs/methods.md 4.16. Rules stay as they are; what they look at does not. Claimed examples and steps
are held against a client's hello at the border, with or without trust (``runtime/border.py``).

``options``  the table ``[trust]``
``book``     how far each client is trusted, kept in the state
``cap``      nobody is chosen in more than a stated share of the rounds
``mixes``    a claimed label mix against the client's own update in a short training
``losses``   a claimed loss against everybody's, and against the client's own update
``rounds``   where the loop asks: before it selects, when it hears losses, after it trained
"""
