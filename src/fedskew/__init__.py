"""fedskew."""
