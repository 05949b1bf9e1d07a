"""Training on this machine: a worker process per core, data and parameters in shared memory.

``runtime.py``        what the loop talks to
``store.py``          the examples of all clients, kept once
``tasks.py``          the pieces of work, and the two kinds of hands for them with the same bits:
``one_process.py``    this process does everything, or
``worker_pool.py``    several worker processes, one torch thread each, share it
``process.py``        one worker process and its pipe, as its parent sees it
``nursery.py``        child processes that start at once, with torch in memory
``worker.py``         the same process from inside
``task_counter.py``   where workers find their next task
``shared_params.py``  models in shared memory
``trainer.py``        trains and scores a client
``step.py``           one optimiser step, fused where possible
``criterion.py``      the loss of a batch and its gradient at the logits, by formula
``linear.py``         logistic regression of many clients at once, without autograd
``honoured.py``       what of a job the two fast paths can do
``flat.py``           a torch module whose parameters live in one flat vector
``concatenated.py``   several trained bodies under one output layer
``allocator.py``      keeps freed memory for the next step
"""
