"""The command line, a file per group of commands, a folder for those of ``flower``; ``main`` puts
them together, ``progress`` is what a person sees meanwhile.
"""
