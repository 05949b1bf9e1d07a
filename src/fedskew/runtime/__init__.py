"""Runtimes: the only code that trains. Each implements :class:`fedskew.types.Runtime`.

``local``     worker processes on this machine
``flower``    clients on other machines, through Flower
``scripted``  no training at all: replies written in advance, for tests and for trying rules out
``wrapped``   a runtime around another one that passes everything on
``faults``    makes clients unavailable, slow, silent or corrupt, on purpose, around any runtime
``hostile``   makes clients attack or lie, on purpose, around any runtime
``metered``   reads a meter around each client of any runtime
``border``    what a client may say at all: every reply of every runtime passes it
``replies``   what clients sent back after training, checked, for every runtime
"""
