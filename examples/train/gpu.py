#!/usr/bin/env python3
"""Trains on a GPU bare and under rsswarden, and compares.

    python3 gpu.py --rsswarden bin/rsswarden

train.py with pinned memory and persistent workers over an LMDB, ddp.py by torchrun on
two ranks, and frameworks.py for each framework that is installed. While it trains under rsswarden, its workers are recycled every 2 s and
trimmed, and it is asked for a checkpoint; as "revive" they are killed instead, and replaced
by --revive any. Printed are the records a second and the
checksum of each run, what was recycled, pinned and shared memory, and what
`rsswarden doctor` and `rsswarden report` say.

Exit status: 0 if each checksum is as bare and workers were recycled, or replaced; 1 if not; 77 where
there is no GPU, or no torch with CUDA, or no lmdb: the reason is printed. --device cpu
tries all this without a GPU.
"""
import argparse
import collections
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77
EVERY = 2  # seconds between two requests


def missing(device):
    """Says what is missing here, or None."""
    try:
        import lmdb  # noqa: F401
        import torch
    except ImportError as e:
        return "%s lacks %s" % (sys.executable, e.name)
    if device == "cuda" and not torch.cuda.is_available():
        return "torch %s finds no CUDA device (torch.cuda.is_available() is False)" % torch.__version__
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    print("torch %s, %s, %d devices" % (torch.__version__, name, torch.cuda.device_count()), flush=True)
    return None


def tree(pid):
    """Returns the PIDs of a process and all below it."""
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        try:
            for task in os.listdir("/proc/%d/task" % found[-1]):
                with open("/proc/%d/task/%s/children" % (found[-1], task)) as f:
                    todo += map(int, f.read().split())
        except OSError:
            pass  # it ended meanwhile
    return found


def status(pid):
    """Returns VmPin and RssShmem of a process in KiB, and its threads' names."""
    try:
        with open("/proc/%d/status" % pid) as f:
            fields = dict(line.split(":", 1) for line in f)
        names = set()
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/comm" % (pid, task)) as f:
                names.add(f.read().strip())
    except OSError:
        return 0, 0, set()
    return int(fields.get("VmPin", "0 kB").split()[0]), int(fields.get("RssShmem", "0 kB").split()[0]), names


def environment(out):
    """Returns the environment of the trainer whose output the file is, None before its first epoch has ended."""
    with open(out) as f:
        text = f.read()
    if "epoch 0: " not in text:
        return None
    try:
        with open("/proc/%s/environ" % re.search(r"pid (\d+), \d+ workers", text).group(1)) as f:
            return dict(entry.split("=", 1) for entry in f.read().split("\0") if "=" in entry)
    except OSError:
        return None  # it ended meanwhile


def revives(events):
    """Says whether the workers of a loader are replaced where they die: their PyTorch is known, or was tried."""
    try:
        with open(events) as f:
            loader = [e for e in map(json.loads, f) if e.get("event") == "loader"]
    except (OSError, ValueError):
        return False  # it is being written
    return any(e["what"] == "revives" or e["what"] == "iter" and e.get("trial") in ("known", "tried") for e in loader)


def kill_worker(out):
    """Kills a worker of the trainer whose output the file is; returns how many."""
    with open(out) as f:
        trainer = re.search(r"pid (\d+), \d+ workers", f.read()).group(1)
    try:
        with open("/proc/%s/cmdline" % trainer) as f:
            line = f.read()
        below = tree(int(trainer))[1:]
        for pid in random.sample(below, len(below)):
            with open("/proc/%d/cmdline" % pid) as f:
                if f.read() == line:  # forked, no helper of torch's
                    os.kill(pid, signal.SIGKILL)
                    return 1
    except (OSError, ValueError):
        pass  # it ended meanwhile
    return 0


class Run:
    """A training: its checksum, its records a second, and what was seen of it."""

    def __init__(self, command, rsswarden=None, checkpoint=False, kill=False):
        self.asked = collections.Counter()
        self.pinned = self.shared = 0
        self.threads = set()
        with tempfile.TemporaryDirectory() as place:
            events, out = os.path.join(place, "events"), os.path.join(place, "out")
            if rsswarden:
                command = [rsswarden, "run", "--events", events, "--limit", "90%", "--checkpoint-signal", "USR2",
                           "--revive", "any", "--"] + command
            with open(out, "w") as f:
                process = subprocess.Popen(command, stdout=f, stderr=subprocess.STDOUT)
            self.watch(process, out, events, rsswarden, checkpoint, kill)
            self.status = process.wait()
            with open(out) as f:
                self.text = f.read()
            self.events = []
            if os.path.exists(events):
                with open(events) as f:
                    self.events = [json.loads(line) for line in f]
        found = re.search(r"^checksum ([0-9a-f]{32})$", self.text, re.M)
        self.checksum = found.group(1) if found else None
        rates = [float(n) for n in re.findall(r" ([0-9.]+) records/s", self.text)]
        self.rate = statistics.median(rates) if rates else 0

    def watch(self, process, out, events, rsswarden, checkpoint, kill):
        """Looks at the processes, and asks for something every 2 s once it trains, until it ends."""
        due, turn = time.monotonic() + EVERY, 0
        while process.poll() is None:
            for pid in tree(process.pid):
                pinned, shared, threads = status(pid)
                self.pinned, self.shared = max(self.pinned, pinned), max(self.shared, shared)
                self.threads |= threads
            # Asked as if the trainer did it: it is for this run and no other.
            trainer = environment(out) if rsswarden and time.monotonic() >= due else None
            if trainer is not None:
                due, turn = time.monotonic() + EVERY, turn + 1
                if kill:
                    self.asked["killed"] += revives(events) and kill_worker(out)
                    continue
                for verb in ["recycle"] + ["trim"] * (turn == 2) + ["checkpoint"] * (checkpoint and turn == 3):
                    done = subprocess.run([rsswarden, verb], env=trainer, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True)
                    self.asked["%s, %s" % (verb, "done" if done.returncode == 0 else "not done")] += 1
                    if done.returncode:
                        self.asked["because of: " + done.stdout.strip()] += 1
            time.sleep(0.1)

    def said(self, what):
        return sum(e.get("event") == "loader" and e.get("what") == what for e in self.events)


def compare(name, command, rsswarden, checkpoint, kill):
    """Runs a training bare and wrapped, and on a GPU bare again; returns whether it is as bare."""
    bare = Run(command)
    if bare.status == SKIPPED:
        print("%s: %s" % (name, bare.text.strip()))
        return True
    runs = {"bare": bare, "wrapped": Run(command, rsswarden, checkpoint, kill)}
    if "cuda" in command:  # how fast it is on a processor that others share says nothing
        runs["bare again"] = Run(command)
    wrapped = runs["wrapped"]
    good = bare.checksum is not None and bare.checksum == wrapped.checksum and wrapped.said("revived" if kill else "recycled") > 0
    print("%s: %s" % (name, "as bare" if good else "NOT AS BARE"))
    for label, run in runs.items():
        print("  %-10s status %d, checksum %s, %.0f records/s" % (label, run.status, run.checksum, run.rate))
    print("  workers recycled %d times, replaced where they died %d times" % (wrapped.said("recycled"), wrapped.said("revived")))
    for what, n in sorted(wrapped.asked.items()):
        print("  asked: %d x %s" % (n, what))
    print("  most in one process: VmPin %d KiB, RssShmem %d KiB; pin thread: %s"
          % (wrapped.pinned, wrapped.shared, ", ".join(n for n in wrapped.threads if "pin" in n) or "no thread of that name"))
    print("  findings: %s" % (", ".join(sorted({str(e.get("what")) for e in wrapped.events if e.get("event") == "finding"})) or "none"))
    if not good:
        print(bare.text, wrapped.text, sep="\n")
    sys.stdout.flush()
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rsswarden", required=True, metavar="FILE", help="the program; a static one runs anywhere")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--records", type=int, default=4000)
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--step-ms", type=float, default=20)
    p.add_argument("--only", metavar="NAME,...", default="train,revive,torchrun,accelerate,transformers,lightning", help="which trainings [%(default)s]")
    args = p.parse_args()
    lacks = missing(args.device)
    if lacks:
        print("skipped: " + lacks)
        return SKIPPED
    rsswarden = os.path.abspath(args.rsswarden)
    with tempfile.TemporaryDirectory() as place:
        common = ["--data", os.path.join(place, "data.lmdb"), "--records", str(args.records), "--device", args.device,
                  "--epochs", str(args.epochs), "--step-ms", str(args.step_ms)]
        train = [sys.executable, "-W", "ignore", os.path.join(HERE, "train.py")] + common + ["--workers", "4", "--persistent"]
        torchrun = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc_per_node", "2"]
        ranks = torchrun + [os.path.join(HERE, "ddp.py")] + common + ["--workers", "2"]
        commands = {"train": train, "revive": train, "torchrun": ranks}
        for framework in "accelerate", "transformers", "lightning":
            commands[framework] = [sys.executable, "-W", "ignore", os.path.join(HERE, "frameworks.py"), framework] + common
        # Debian builds torch without what its torchrun needs.
        tried = "torchrun" in args.only and subprocess.run(torchrun + ["--no_python", "true"], capture_output=True, text=True)
        if tried and tried.returncode:
            print("torchrun: skipped, it does not start here: " + tried.stderr.strip().splitlines()[-1])
            del commands["torchrun"]
        good = True
        for name in args.only.split(","):
            if name in commands:
                good = compare(name, commands[name], rsswarden, name == "torchrun", name == "revive") and good
    print("\n$ rsswarden doctor %s" % sys.executable, flush=True)
    subprocess.run([rsswarden, "doctor", "--timeout", "60s", sys.executable])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
