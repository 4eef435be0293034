"""The process in a job: USR2 has the call pickled and the job requeued, by task 0, which
then ends with status 255; TERM and CONT are noted and passed over."""
import os
import pickle
import signal
import subprocess
import sys

path = os.path.join(sys.argv[1], "submitted.pkl")
with open(path, "rb") as f:
    delayed = pickle.load(f)


def requeue(number, frame):
    print("got %s\n" % signal.Signals(number).name, end="", flush=True)
    if os.environ["SLURM_PROCID"] != "0":
        return
    with open(path + ".new", "wb") as f:
        pickle.dump(delayed.function.checkpoint(*delayed.args, **delayed.kwargs), f)
    os.replace(path + ".new", path)
    subprocess.check_call(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]])
    sys.exit(-1)


def bypass(number, frame):
    print("bypassed %s\n" % signal.Signals(number).name, end="", flush=True)


signal.signal(signal.SIGUSR2, requeue)
signal.signal(signal.SIGTERM, bypass)
signal.signal(signal.SIGCONT, bypass)
print("result %s\n" % delayed.result(), end="", flush=True)
