"""Tables in the terminal: ``measurement`` (and privacy) and ``comparison``."""
