"""Training on this machine: one worker process per core, one torch thread each, data and parameters
in shared memory.

``runtime.py``  what the loop talks to      ``crew.py``     alone.py or team.py: same calls, same bits
``store.py``    the examples, kept once     ``process.py``  one worker process and its pipe
``blocks.py``   models in shared memory     ``board.py``    where workers find their next task
``trainer.py``  trains and scores a client  ``step.py``     one optimiser step, fused where possible
``flat.py``     a torch module whose parameters live in one flat vector
"""
