"""Training on this machine: one worker process per core, one torch thread each, data and parameters in shared memory.

``runtime.py``  what the loop talks to      ``crew.py``     one process or several, same two calls
``store.py``    the examples, kept once     ``process.py``  one worker process and its pipe
``trainer.py``  trains and scores a client  ``step.py``     one optimiser step, fused where possible
``flat.py``     a torch module whose parameters live in one flat vector
"""
