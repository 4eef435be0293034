"""Has workers of a loader replaced while it runs, and says as JSON how long the trainer stood still.

    birth.py HOOK GIB helper|fork COUNT

The trainer has so many GiB of anonymous memory in pages of 4 KiB. Half of the workers are
replaced by swap, half by drain.

pauses   ms that the trainer spent in the hook, of each
memory   bytes that trainer, workers and helper have together (PSS), once the trainer has
         rewritten its memory and each worker was replaced since
"""
import importlib.util
import json
import mmap
import os
import shutil
import sys
import tempfile

HOOK, GIB, HOW, COUNT = sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
RECORDS, BATCH, WORKERS = 8000, 4, 2


def pss(pid):
    with open("/proc/%s/smaps_rollup" % pid) as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))


def children():
    with open("/proc/self/task/%d/children" % os.getpid()) as file:
        return file.read().split()


def touch(memory, value):
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = value


class Recycling:
    def __init__(self, torch, watcher):
        self.torch, self.watcher, self.done, self.first = torch, watcher, [], True
        self.loader = torch.utils.data.DataLoader(
            range(RECORDS), batch_size=BATCH, num_workers=WORKERS, persistent_workers=True, multiprocessing_context="fork")

    def until(self, count):
        while len(self.done) < count or self.watcher.waits:
            came, iterator = [], iter(self.loader)
            for number, batch in enumerate(iterator):
                came += batch.tolist()
                if number % 4:
                    continue
                if self.watcher.waits:
                    said = self.watcher.answer()
                    if said is not None:
                        self.done.append(said)
                elif len(self.done) < count:
                    self.watcher.ask(iterator._workers[len(self.done) % WORKERS].pid, ("swap", "drain")[len(self.done) // 2 % 2])
            assert came == list(range(RECORDS)), "batches were lost, doubled or out of order"


def main(directory):
    spec = importlib.util.spec_from_file_location("trial", HOOK + "/_rsswarden/trial.py")
    trial = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trial)
    trial.arm(directory)
    if HOW == "helper":
        with open(directory + "/settings", "w") as file:
            json.dump({"v": 1, "left": 1 << 60}, file)
    import torch.utils.data

    patch = sys.modules["_rsswarden.patch"]
    patch._torch.verdict = "ok"
    memory = mmap.mmap(-1, int(GIB * (1 << 30)), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    touch(memory, 1)
    watcher = trial.Watcher(patch._here().side)
    recycling = Recycling(torch, watcher)
    recycling.until(COUNT)
    pauses = [said["pause_ms"] for said in recycling.done]
    touch(memory, 2)
    recycling.until(COUNT + WORKERS)
    helped = {said["helper"] != 0 for said in watcher.said() if said["what"] == "started"}
    assert helped == {HOW == "helper"}, "the replacements were not forked as they should be"
    print(json.dumps({"pauses": pauses, "memory": sum(map(pss, ["self"] + children()))}))


if __name__ == "__main__":
    main_directory = tempfile.mkdtemp()
    try:
        main(main_directory)
    finally:
        shutil.rmtree(main_directory)
