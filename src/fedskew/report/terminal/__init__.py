"""Tables in the terminal: ``measurement`` for ``fedskew measure`` and ``privacy``,
``comparison`` for ``fedskew compare``.
"""
