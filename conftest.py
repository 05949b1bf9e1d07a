"""Doctests of modules that need Flower are left out where it is not installed (`make test-flower` runs them)."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["src/fedskew/runtime/flower/*", "src/fedskew/fleet.py"]
