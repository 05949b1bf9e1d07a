"""What a run cost and who gained: ``traffic`` counts bytes, ``participation`` who trains, ``fairness`` whom it serves."""
