"""Training on this machine: one worker process per core, one torch thread each, data and parameters
in shared memory.

``runtime.py``        what the loop talks to
``tasks.py``          what one_process.py and worker_pool.py are asked: same calls, same bits
``process.py``        one worker process and its pipe; ``worker.py`` is what runs in it
``store.py``          the examples, kept once
``shared_params.py``  models in shared memory
``task_counter.py``   where workers find their next task
``trainer.py``        trains and scores a client
``step.py``           one optimiser step, fused where possible
``linear.py``         many logistic regressions at once
``honoured.py``       what of a job the two fast paths can do
``flat.py``           a torch module whose parameters live in one flat vector
"""
