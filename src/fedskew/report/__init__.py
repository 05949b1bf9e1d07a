"""What a person reads at the end: tables in the terminal and figures on disk.

``tables`` (rich) and ``figures`` (matplotlib, the optional extra ``fedskew[report]``: only imported when a figure is drawn).
"""
