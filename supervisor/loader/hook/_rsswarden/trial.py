"""Tries recycling with the torch and the Python that run this, in a process of its own.

usage: trial.py REQUEST

REQUEST is a file untried.KEY that the hook wrote, whose sys.path is taken. This plays the
watcher and the trainer in one: it loads numbers, has workers replaced in both ways,
leaves an epoch early, kills a replacement, and looks at every batch. The last line that
it prints is a verdict: "ok", or "refused" with what went wrong, or "failed" where
nothing can be said, such as for want of memory. Then it kills workers, whose work is to be
done again: "unrevived" says what of that went wrong. How long anything takes is no part of it.
"""
import sys

if __name__ == "__main__":
    del sys.path[0]  # which is that of our modules

import gc
import importlib.util
import json
import multiprocessing
import os
import queue
import random
import shutil
import signal
import tempfile
import time
import warnings

MARK = "rsswarden-trial: "
_HOOK = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_RECORDS, _BATCH = 800, 4
_EPOCHS = 500  # in which nothing was answered, until that is given up
_KILLS = 6  # of workers, in each of two loaders: each may take half a second to be met
_PATIENCE = 240  # seconds for these, which take ten: the whole trial has ten minutes


class Wrong(Exception):
    """What recycling with this torch does wrong."""


class Failed(Exception):
    """Why nothing can be said."""


def described(error):
    return (str(error) if isinstance(error, (Wrong, Failed)) else "%s: %s" % (type(error).__name__, error))[:300]


def hold(true, why, *arguments):
    if not true:
        raise Wrong(why % arguments if arguments else why)


def arm(directory):
    """Has this process be one of a job under rsswarden, whose run directory that is."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot_id = file.read().strip()
    with open(directory + "/identity", "w") as file:
        file.write("version 1\nboot_id %s\npid_ns %s\n" % (boot_id, os.readlink("/proc/self/ns/pid")))
    os.environ["RSSWARDEN_DIR"] = directory
    spec = importlib.util.spec_from_file_location("rsswarden_hook", os.path.join(_HOOK, "sitecustomize.py"))
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


class Watcher:
    """The watcher's end of the protocol."""

    def __init__(self, side):
        self._ctl, self._log = side._ctl, side._log
        self._asked, self._waits = [], None

    def ask(self, pid, mode):
        self._waits = len(self._asked) + 1
        self._asked.append({"id": self._waits, "worker": pid, "mode": mode})
        with open(self._ctl + ".new", "w") as file:
            json.dump({"v": 1, "budget": 0, "trim": [], "gc": [], "recycle": self._asked}, file)
        os.rename(self._ctl + ".new", self._ctl)

    @property
    def waits(self):
        return self._waits is not None

    def said(self):
        try:
            with open(self._log) as file:
                return [json.loads(line) for line in file]
        except OSError:
            return []

    def answer(self):
        """The report of a worker that was replaced, or None for not yet."""
        for said in self.said():
            if said.get("id") != self._waits or said["what"] not in ("recycled", "refused"):
                continue
            self._waits = None
            why = said.get("why", "")
            if said["what"] == "recycled":
                if why:
                    raise Failed("a worker that was replaced %s" % why)  # in the time that it was given
                hold(said["exit"] == 0, "a worker that was replaced ended with status %s", said["exit"])
                return said
            if why in ("loader ended", "process has ended", "no such worker"):
                return None  # an epoch that was over too soon
            if why.startswith("fork refused") or why.startswith("replacement did not come up: in") or "status -" in why:
                raise Failed(why)
            raise Wrong("a recycle was refused: %s" % why)
        return None


def shapes(torch):
    """Yields ways to use a loader: its options, the modes of recycling, and whether with a fork helper, where one can be had."""
    import inspect

    base = {"batch_size": _BATCH, "multiprocessing_context": "fork"}
    yield dict(base, num_workers=2, persistent_workers=True), ("swap", "drain"), False
    yield dict(base, num_workers=1), ("swap",), False
    if "in_order" in inspect.signature(torch.utils.data.DataLoader.__init__).parameters:
        yield dict(base, num_workers=2, in_order=False, persistent_workers=True), ("swap",), False
    yield dict(base, num_workers=2, persistent_workers=True), ("swap", "drain"), True


def kinds(torch):
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return _RECORDS

        def __getitem__(self, index):
            return index, os.getpid(), random.getrandbits(48), int(torch.empty((), dtype=torch.int64).random_())

    class Order(torch.utils.data.Sampler):
        def __init__(self):
            self.drawn = []

        def __len__(self):
            return _RECORDS

        def __iter__(self):
            self.drawn.append(torch.randperm(_RECORDS).tolist())
            return iter(self.drawn[-1])

    return Data, Order


def _owner(iterator):
    """Returns the PID of the worker that has the next batch, as recycling would find it; no worker may have been replaced."""
    return iterator._workers[iterator._task_info[min(iterator._task_info)][0]].pid


def one(torch, patch, watcher, options, modes):
    """Runs one loader for three epochs, the second of which is left early, and on until every request was answered."""
    data, order = (kind() for kind in kinds(torch))
    loader = torch.utils.data.DataLoader(data, sampler=order, **options)
    draws, gone, done, wanted, epoch = [], set(), 0, 2 * len(modes), -1
    while epoch < 2 or done < wanted:
        epoch += 1
        if epoch == _EPOCHS:
            raise Failed("%d of %d requests were answered" % (done, wanted))
        records, iterator, first = [], iter(loader), True
        why = iterator._rsswarden.why
        hold(why is None, "%s", why)
        for number in range(_RECORDS // _BATCH):
            owner = _owner(iterator) if first and epoch == 0 and options.get("in_order", True) else None
            batch = next(iterator, None)
            hold(batch is not None, "%d of %d records came", len(records), _RECORDS)
            index, pids, drawn, other = batch
            hold(owner in (None, int(pids[0])), "torch's _task_info names another worker than the one that has the batch")
            records += index.tolist()
            draws += zip(drawn.tolist(), other.tolist())
            hold(not gone & set(pids.tolist()), "a batch came from a worker that had ended")
            time.sleep(0.0005)
            if watcher.waits and not number % 8:
                said = watcher.answer()
                if said is not None:
                    gone.add(said["worker"])
                    done += 1
            # 190 is near the end: the next epoch begins while a worker drains.
            if number > 3 and not watcher.waits and (first or number % 38 == 0) and done < wanted:
                watcher.ask(iterator._workers[done % len(iterator._workers)].pid, modes[done % len(modes)])
                first = False
            if epoch == 1 and number > 40:
                break
        hold(epoch == 1 or next(iterator, None) is None, "more batches came than there are")
        if options.get("in_order", True):
            hold(records == order.drawn[epoch][:len(records)], "batches were lost, doubled, changed or out of order")
        hold(len(set(records)) == len(records), "a batch came twice")
    for place in (0, 1):
        hold(len({pair[place] for pair in draws}) == len(draws), "two workers drew the same random numbers")
    del iterator, loader
    gc.collect()
    hold(not multiprocessing.active_children(), "a worker outlived its loader")
    return done


def killed(torch, patch, watcher):
    """Kills a replacement: torch has to end the loop as it ends it for a worker of its own."""
    loader = torch.utils.data.DataLoader(range(1 << 30), batch_size=_BATCH, num_workers=2, multiprocessing_context="fork",
                                         collate_fn=list)  # a batch of tensors may be met half-sent
    iterator, texts = iter(loader), []
    while True:
        try:
            if not texts:
                _until_killed(iterator, watcher)
                raise Wrong("torch did not notice the death of a replacement")
            if iterator._worker_pids_set:
                torch.utils.data._utils.signal_handling._remove_worker_pids(id(iterator))
                iterator._worker_pids_set = False
            iterator._shutdown_workers()
            break
        except RuntimeError as error:
            # Until then torch says it again at the end of any child, such as the worker that was replaced.
            texts.append(str(error))
            if len(texts) > 9:
                raise
    for text in texts:
        hold("killed by signal" in text or "exited unexpectedly" in text, "the death of a replacement was met as: %s", text)
    return 1


def _until_killed(iterator, watcher):
    for number, _ in enumerate(iterator):
        if number == 4:
            watcher.ask(iterator._workers[0].pid, "swap")
        said = watcher.answer() if watcher.waits and not number % 8 else None
        if said is not None:
            os.kill(said["new"], signal.SIGKILL)
        if number > 1 << 22:
            break


def imitate_pinning(torch):
    """Has torch take its way with a pin thread where there is no GPU: a real thread and queue, without the pinning."""
    def same(source, sink, device, done, *_):
        while not done.is_set():
            try:
                got = source.get(timeout=5.0)
            except queue.Empty:
                continue
            sink.put(got)

    torch.utils.data._utils.pin_memory._pin_memory_loop = same
    torch.cuda.is_available, torch.cuda.current_device, torch.cuda._lazy_init = lambda: True, lambda: 0, lambda: None
    if hasattr(torch, "accelerator"):
        torch.accelerator.is_available, torch.accelerator.current_device_index = lambda: True, lambda: 0


def pinning(torch):
    """Returns options for a pin thread, none where that cannot be had here."""
    imitate_pinning(torch)
    options = {"pin_memory": True}
    try:
        list(torch.utils.data.DataLoader(range(_BATCH), num_workers=1, multiprocessing_context="fork", **options))
    except Exception:
        options.clear()
    return options


def revived(torch, options, large):
    """Kills workers at random moments: each batch has to come once, right and in its place.

    large is the size of a record: a batch of large ones is half-sent at many of those moments.
    """
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return _RECORDS

        def __getitem__(self, index):
            time.sleep(0.0002)
            return index, bytes([index % 251]) * large

    def collated(batch):
        return torch.tensor([index for index, _ in batch]), [text for _, text in batch]

    loader = torch.utils.data.DataLoader(Data(), batch_size=_BATCH, num_workers=2, collate_fn=collated, multiprocessing_context="fork", **options)
    killed, epochs = 0, 0
    while killed < _KILLS:
        epochs += 1
        if epochs == _EPOCHS:
            raise Failed("%d workers were killed in %d epochs" % (killed, epochs))
        iterator, came = iter(loader), []
        hold("_rsswarden_revive" in vars(iterator), "this torch lacks what that rests on")
        due = random.randrange(20)
        for number, (indices, texts) in enumerate(iterator):
            came += indices.tolist()
            hold(texts == [bytes([index % 251]) * large for index in indices.tolist()], "a batch came with other records")
            if number == due and killed < _KILLS:
                due += random.randrange(10, 40)
                time.sleep(random.random() * 0.004)
                try:
                    os.kill(random.choice(iterator._workers).pid, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass  # killed before, and not replaced yet
        hold(came == list(range(_RECORDS)), "batches were lost, doubled or out of order")
    del iterator, loader
    gc.collect()
    hold(not multiprocessing.active_children(), "a worker outlived its loader")


def unrevived(torch, watcher, directory):
    """Returns why workers that die are not replaced with this torch, or nothing where they are, each time.

    What hangs here is no reason not to recycle.
    """
    def late(*_):
        raise Wrong("a loader hung after its workers were killed")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(_PATIENCE)
    with open(directory + "/settings", "w") as file:
        json.dump({"v": 1, "revive": 2}, file)
    try:
        revived(torch, {"persistent_workers": True}, 60000)
        revived(torch, pinning(torch), 6)
        replaced = sum(said["what"] == "revived" for said in watcher.said())
        hold(replaced >= _KILLS, "%d of %d workers were replaced", replaced, 2 * _KILLS)
        for said in watcher.said():
            hold(said["what"] != "off", "the hook turned itself off: %s", said.get("why"))
        return ""
    except Exception as error:
        return described(error)
    finally:
        signal.alarm(0)


def attempt(request, directory, said):
    """Says in said how many workers were replaced, and why none is that dies."""
    arm(directory)
    import torch
    import torch.utils.data

    torch.set_num_threads(1)
    patch = sys.modules.get("_rsswarden.patch")
    if patch is None:
        raise Failed("the hook did not load")
    patch._torch.verdict = "ok"
    watcher, count = Watcher(patch._here().side), 0
    for options, modes, helped in shapes(torch):
        if helped:
            from _rsswarden import fork_helper

            fork_helper.LEAST = 0
            with open(directory + "/settings", "w") as file:
                json.dump({"v": 1, "left": 1 << 60}, file)
        count += one(torch, patch, watcher, options, modes)
        if patch._torch.key != request["key"]:
            raise Failed("it found another torch, %s in %s" % (torch.__version__, torch.__file__))
    count += killed(torch, patch, watcher)
    for line in watcher.said():
        hold(line["what"] != "off", "the hook turned itself off: %s", line.get("why"))
    said["count"], said["unrevived"] = count, unrevived(torch, watcher, directory)


def give_way():
    """Leaves the processor and what memory there is to the training."""
    os.nice(19)
    files = [("/proc/self/oom_score_adj", "1000")]
    if os.getsid(0) == os.getpid():
        # The kernel shares the processor out between sessions first (autogroup, sched(7)): nice counts within one.
        files.append(("/proc/self/autogroup", "19"))
    for name, value in files:
        try:
            with open(name, "w") as file:
                file.write(value)
        except OSError:
            pass


def main():
    give_way()
    warnings.filterwarnings("ignore")
    os.environ.update(CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    said, directory = {"verdict": "failed"}, None
    try:
        with open(sys.argv[1]) as file:
            request = json.load(file)
        sys.path[:] = request["path"]
        directory = tempfile.mkdtemp(prefix="rsswarden-trial.")
        attempt(request, directory, said)
        said["verdict"] = "ok"
    except Wrong as error:
        said.update(verdict="refused", why=str(error)[:300])
    except Exception as error:
        said["why"] = described(error)
    finally:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
    sys.stdout.write("\n" + MARK + json.dumps(said) + "\n")
    sys.stdout.flush()
    for process in multiprocessing.active_children():
        process.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
