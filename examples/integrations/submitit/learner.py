"""A training that submitit can put back into the queue: all that it needs to go on is
in the object, which submitit pickles."""
import time

import submitit


class Learner:
    def __init__(self, steps, leak_mb=0):
        self.steps, self.leak_mb, self.step = steps, leak_mb, 0

    def __call__(self):
        print("from step %d\n" % self.step, end="", flush=True)  # in one write: rsswarden prints too
        leaked = []
        while self.step < self.steps:
            leaked.append(b"\x55" * (self.leak_mb << 20))
            time.sleep(0.05)
            self.step += 1
            print("step %d\n" % self.step, end="", flush=True)
        return self.step

    def checkpoint(self, *args, **kwargs):
        """What submitit calls at USR2: it pickles what is returned, and requeues the job."""
        return submitit.helpers.DelayedSubmission(self, *args, **kwargs)
