"""What a run cost and whom it served.

``traffic`` counts bytes by direction and kind, ``clock`` and ``links`` simulated time, ``energy``
joules; ``targets`` says what an accuracy took, ``participation`` who trained, ``fairness`` whom it
serves.
"""
