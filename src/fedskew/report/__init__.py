"""What a person reads: tables in the ``terminal``, ``figures`` on disk, the ``page``.

``live`` serves the page while runs go on, ``exports`` hands runs to other tools, ``amounts`` writes
numbers with units.
"""
