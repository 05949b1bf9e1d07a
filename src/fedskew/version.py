"""The version: one place, read by the package, its records and its build."""

__version__ = "0.2.0"
