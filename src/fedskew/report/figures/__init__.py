"""Figures on disk.

With matplotlib, the optional extra ``fedskew[report]``: only imported when a figure is drawn.

``measurement`` draws all figures of a measurement, ``paper`` those of a comparison; the others hold
one figure each.
"""
