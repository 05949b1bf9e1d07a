"""What a round cost. ``traffic`` counts bytes on the wire by direction and kind, ``clock`` and ``links`` simulated time,
``energy`` joules; ``targets`` says what an accuracy took, ``participation`` who got to train."""
