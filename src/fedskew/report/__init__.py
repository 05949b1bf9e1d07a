"""What a person reads at the end: tables in the ``terminal``, ``figures`` on disk, the ``page``
that opens in a browser.

``live`` serves the page while runs go on, ``exports`` hands runs to other tools, ``amounts`` writes
numbers with units.
"""
