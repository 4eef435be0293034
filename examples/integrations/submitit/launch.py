"""Submits a training with submitit, and rsswarden before its Python in each task.

Slurm sends USR2 90 s before the time is up, which submitit asks it for; rsswarden sends
the same to the training where memory comes to 93 % of the limit. Either way submitit
pickles the training and requeues the job, with the memory that it had.
"""
import sys

import submitit

from learner import Learner

executor = submitit.AutoExecutor(
    folder="log", slurm_python="rsswarden run --at 93%:signal=USR2 -- " + sys.executable)
executor.update_parameters(timeout_min=60, mem_gb=4, cpus_per_task=2)
job = executor.submit(Learner(steps=40, leak_mb=int(sys.argv[1]) if sys.argv[1:] else 0))
print("job", job.job_id)
