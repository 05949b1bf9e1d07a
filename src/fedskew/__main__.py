"""``python -m fedskew``."""

from fedskew.cli.main import main

main()
