"""The command line, a file per group of commands; ``main`` puts them together, ``progress`` is
what a person sees meanwhile.
"""
