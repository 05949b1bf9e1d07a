"""Runtimes: the only code that trains. Each implements :class:`fedskew.types.Runtime`.

``local``     worker processes on this machine
``scripted``  no training at all: replies written in advance, for tests and for trying rules out
``faults``    wraps any runtime and makes clients unavailable, slow, silent or corrupt, on purpose
"""
