"""What a round cost. ``traffic`` counts bytes on the wire by direction and kind."""
