"""Stands in for submitit in tests, which Debian does not have: what its Slurm executor
writes for a job, and what its process in the job does at a signal."""
import os
import pickle
import shlex
import sys

from submitit import helpers


class AutoExecutor:
    def __init__(self, folder, slurm_python=None):
        self.folder = os.path.abspath(folder)
        self.python = slurm_python or shlex.quote(sys.executable)
        self.memory = ""

    def update_parameters(self, timeout_min, mem_gb, cpus_per_task):
        self.memory = "#SBATCH --mem=%dGB\n#SBATCH --time=%d\n#SBATCH --cpus-per-task=%d\n" % (mem_gb, timeout_min, cpus_per_task)

    def submit(self, function, *args):
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, "submitted.pkl"), "wb") as f:
            pickle.dump(helpers.DelayedSubmission(function, *args), f)
        script = os.path.join(self.folder, "submission.sh")
        with open(script, "w") as f:
            f.write("#!/bin/bash\n%s#SBATCH --open-mode=append\n#SBATCH --signal=USR2@90\n"
                    "export SUBMITIT_EXECUTOR=slurm\n"
                    "srun --unbuffered %s -u -m submitit.core._submit %s\n" % (self.memory, self.python, shlex.quote(self.folder)))
        return Job()


class Job:
    job_id = "not submitted"
