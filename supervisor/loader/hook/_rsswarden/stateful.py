"""Replacing the workers of torchdata's StatefulDataLoader in the middle of an epoch.

Its trainer keeps a snapshot of each worker: the worker's state after the last
batch that the program got from it. So a worker that owes nothing can be
replaced by one that starts from that snapshot, as torchdata does where it
resumes from a checkpoint, for a map and for an iterable data set:

1. The worker's next task asks for its state, whatever snapshot_every_n_steps
   says. Tasks for it after that one are held back. torch goes on as before:
   it numbers them, draws their indices and takes its own snapshots.
2. When the program has got that one's batch, the replacement starts from the
   snapshot and answers with an _AckStartup. The others work on meanwhile.
3. The replacement gets the worker's place and the tasks held back; the old
   worker ends.

Each task stays with its place and its number, so no batch changes its turn.
Until step 3 the old worker waits, unchanged: where anything fails, it gets the
tasks held back and goes on. A replacement that has another state than the one it
was given is not used.

A map data set without a state of its own needs none of this: recycle replaces
its workers as those of torch's own loader.
"""
import ast
import pickle
import sys
import time

from _rsswarden import birth, fingerprint, guard, iterable, recycle

MODULE = "torchdata.stateful_dataloader.stateful_dataloader"
ITERATOR = "_StatefulMultiProcessingDataLoaderIter"
_STATE = "_rsswarden_state"  # attribute of the iterator: what the replacement on its way starts from
_MARK = "rsswarden "  # of the _AckStartup that asks a replacement
SLICE = 0.2  # seconds between two looks at a replacement that the training waits for
_ENDED = "worker is at the end of its data"
_WAITS = 30.0  # seconds that the training waits for one at most

# What is used of torchdata: of its module, its iterator's class, its iterators, a worker's snapshot.
_NAMES = (ITERATOR, "_worker_loop", "_AckStartup", "Stateful", "_DATASET_STATE", "_DATASET_ITER_STATE", "_FETCHER_STATE",
          "_FETCHER_ENDED")
_METHODS = ("__init__", "_next_data", "_try_get_data", "_get_data", "_try_put_index", "_reset", "_shutdown_workers",
            "_worker_key")
_KNOWN = ("_worker_snapshots", "_snapshot_interval", "_num_yielded", "_rcvd_idx", "_send_idx")
_SNAPSHOT = ("get_state", "_incr_dataset_state", "_incr_fetcher_iter_state")


class Parts:
    """The parts of torchdata in use, and why recycling is not possible with them, or None."""

    def __init__(self, module, torch_parts, constructor):
        self.utils, self._torch, self.module = torch_parts.utils, torch_parts, module
        self.loop, self.filled, self.why = getattr(module, "_worker_loop", None), {}, None
        try:
            self._read(module, constructor)
        except fingerprint.Unknown as error:
            self.why = "torchdata: %s" % error
        except Exception as error:
            self.why = guard.describe(error)

    @property
    def multiprocessing(self):
        return self._torch.multiprocessing

    def is_answer(self, data):
        """Says whether what came from a worker is a replacement's answer to Recycler."""
        return type(data) is tuple and len(data) == 2 and type(data[0]) is self.module._AckStartup \
            and type(data[0].initial_state) is str

    def _read(self, module, constructor):
        for owner, names in ((module, _NAMES), (getattr(module, ITERATOR, None), _METHODS),
                             (self.utils.signal_handling, ("_set_worker_pids", "_remove_worker_pids"))):
            for name in names:
                if not hasattr(owner, name):
                    raise fingerprint.Unknown("there is no %s" % name)
        worker = sys.modules[self.loop.__module__]
        init, loop = [fingerprint.Text(fingerprint.source(m), m.__name__).function(*path)
                      for m, path in ((module, (ITERATOR, "__init__")), (worker, ("_worker_loop",)))]
        self.filled = fingerprint.arguments(init, loop, form=_state)
        for tree, given, owner in ((init, constructor, ITERATOR), (loop, self.loop, None)):
            if not fingerprint.agrees(tree, given, owner):
                raise fingerprint.Unknown("%s is not that of its source text" % tree.name)

    def untried(self):
        """Says why recycling may not be done yet, or never, or None: a trial is of torch's own loader."""
        return self.why


def _state(parameter, expression):
    """Says that worker_states[self._worker_key(i)] is the state that a worker starts from."""
    key = getattr(expression, "slice", None)
    if isinstance(expression, ast.Subscript) and isinstance(key, ast.Call) \
            and ast.dump(key.func) == ast.dump(ast.parse("self._worker_key", mode="eval").body):
        return "is", _STATE


class Gate:
    """Stands for a worker's index queue: lets one more task through, which asks for the worker's state, and holds the others back."""

    def __init__(self, worker_id, index_queue):
        self.worker_id, self.queue = worker_id, index_queue
        self.held = None  # tasks; None until the one that asks for the state has passed
        self.last = None  # the number of that one
        self.yielded = None  # batches that the program had got at the last look
        self.clean = True  # each call for a batch since then gave one

    def put(self, item):
        if type(item) is not tuple:
            self.queue.put(item)  # not a task: the end, or a new epoch
        elif self.held is not None:
            self.held.append(item)
        else:
            self._ask(item)

    def _ask(self, item):
        try:
            number, (index, _) = item
        except (TypeError, ValueError):
            self.queue.put(item)
            return
        self.held, self.last, self.clean = [], number, True
        self.queue.put((number, (index, True)))

    def again(self):
        """Lets the next one through: the last one's state did not reach the trainer's snapshot."""
        held, self.held = self.held, None
        for item in held:
            self.put(item)

    def look(self, yielded):
        """Takes note of how many batches the program has got, once before each call for the next."""
        if self.yielded is not None and yielded != self.yielded + 1:
            self.clean = False
        self.yielded = yielded

    def __getattr__(self, name):
        return getattr(self.queue, name)


class Recycler(recycle.Recycler):
    """Replaces the workers of one iterator of torchdata's."""

    def __init__(self, side, number, context, parts):
        super().__init__(side, number, context, parts)
        self.states = False  # the workers have states
        self.gate = None  # in the place of the index queue of the worker that is being replaced

    def poll(self, iterator):
        try:
            if self.gate is not None:
                self.gate.look(iterator._num_yielded)
            super().poll(iterator)
        except BaseException:
            self.abandon(iterator, "hook failed")
            raise

    def wait(self, iterator, seconds):
        """Looks at a replacement on its way while the training waits for a batch, and has for so long."""
        task = self.task
        if task is None or task.new is None or self.gate is None:
            return
        self.began = time.perf_counter()
        try:
            if self._due(iterator):
                task.waited += seconds
                task.paused += seconds
            self.step(iterator)
        except BaseException:
            self.abandon(iterator, "hook failed")
            raise
        if task is self.task:
            task.paused += time.perf_counter() - self.began

    def answer(self, asked, said):
        """Takes what a replacement said; one that was given up may be heard late."""
        task = self.task
        if self.gate is not None and task is not None and task.new is not None and asked.initial_state == task.mark:
            task.answer = said

    def late(self, iterator):
        """Gives up a replacement where the program's own timeout has passed; says whether there was one."""
        if self.gate is None or not self.gate.held:
            return False
        self._refuse(iterator, "replacement did not come up within the loader's timeout")
        return True

    def _begin(self, iterator, number, pid, mode):
        for worker_id, process in enumerate(iterator._workers):
            if process.pid == pid and not iterator._workers_status[worker_id]:
                self.refuse(number, pid, _ENDED)
                return
        super()._begin(iterator, number, pid, "swap")

    def _start(self, iterator, task):
        if not self.states:
            return super()._start(iterator, task)
        if self.gate is None:
            gate = Gate(task.worker_id, task.old_queue)
            gate.look(iterator._num_yielded)
            self.gate = iterator._index_queues[task.worker_id] = gate
            return True
        setattr(iterator, _STATE, self._snapshot(iterator).get_state())
        task.mark, task.answer, task.waited = "%s%d" % (_MARK, self.generation), None, 0.0
        try:
            if not super()._start(iterator, task):
                return False
        finally:
            setattr(iterator, _STATE, None)
        birth.put(task.new_queue, self.torch.module._AckStartup(task.worker_id, task.mark))
        return True

    def step(self, iterator):
        if self.gate is None:
            super().step(iterator)
        elif self.task.new is None:
            self._settle(iterator)
        elif self.task.answer is not None:
            self._judge(iterator)
        elif self.task.waited > _WAITS:
            self.why = "replacement did not come up: the training waited %d s" % _WAITS
            self._refuse(iterator, self.why)
        else:
            self._warm(iterator)
            if self.task is None:
                self.reopen(iterator)

    def _settle(self, iterator):
        """Starts the replacement once the trainer's snapshot is all that the worker knows."""
        gate, task = self.gate, self.task
        if not iterator._workers_status[gate.worker_id]:
            self._refuse(iterator, _ENDED)
            return
        if gate.held is None or self._owed(iterator, gate.worker_id):
            return
        if not gate.clean:
            gate.again()  # a call raised, perhaps before the state was taken in
            return
        state = self._snapshot(iterator).get_state()
        fetcher = state[self.torch.module._FETCHER_STATE]
        why = missing(state, iterator, self.torch.module)
        if fetcher is not None and fetcher[self.torch.module._FETCHER_ENDED]:
            why = _ENDED  # torchdata would ask a fresh one for a batch more
        if why is not None:
            self._refuse(iterator, why)
        elif not self._start(iterator, task):
            self.task = None
            self.reopen(iterator)

    def _up(self, task):
        return not self.states and super()._up(task)

    def _due(self, iterator):
        """Says whether the next batch in turn is one of those held back."""
        return any(item[0] == iterator._rcvd_idx for item in self.gate.held)

    def _judge(self, iterator):
        """Has the replacement take over, if it knows what the worker knows."""
        task, said = self.task, self.task.answer.initial_state
        snapshot = self._snapshot(iterator)
        if not isinstance(said, dict):
            self.why = "replacement cannot load the worker's state: %s" % _last_line(said)
        elif differs(snapshot, said, self.torch.module):
            self.why = "data set has another state after load_state_dict than it was given"
        else:
            self._take_over(iterator)
            self.unlink(task)
            return
        self._refuse(iterator, self.why)

    def _take_over(self, iterator):
        super()._take_over(iterator)
        if self.gate is not None:
            self.reopen(iterator)

    def _owed(self, iterator, worker_id):
        owed = super()._owed(iterator, worker_id)
        if self.gate is not None:
            owed = {number for number in owed if number <= self.gate.last}
        return owed

    def _snapshot(self, iterator):
        return iterator._worker_snapshots[iterator._worker_key(self.gate.worker_id)]

    def _refuse(self, iterator, why):
        """Leaves the worker in its place."""
        task, self.task = self.task, None
        self.reopen(iterator)
        new = {}
        if task.new is not None:
            new["new"] = task.new.pid
            self.drop(task)
        self.refuse(task.number, task.old.pid, why, **new)

    def drop(self, task):
        if getattr(task, "answer", None) is None:
            super().drop(task)
            return
        # It may be letting go of the lock of the queue of results: no kill.
        birth.put(task.new_queue, birth.Quit())
        task.new_queue.close()
        self.unlink(task)

    def reopen(self, iterator):
        """Gives the tasks held back to the worker that is in their place."""
        gate = self.gate
        if gate is None:
            return
        queues = iterator._index_queues
        if queues[gate.worker_id] is gate:
            queues[gate.worker_id] = gate.queue
        if iterator._workers_status[gate.worker_id]:
            while gate.held:
                queues[gate.worker_id].put(gate.held[0])
                del gate.held[0]
        self.gate = None

    def abandon(self, iterator, why=None):
        """Leaves what is under way to the worker in its place; nothing else remains of it. Returns the task, if there was one."""
        if self.gate is None:
            return None
        self.reopen(iterator)
        task, self.task = self.task, None
        if task is None:
            return None
        if task.new is not None and task.new in iterator._workers:
            self.leaving.append(task)  # it is the other that leaves
            return None
        if task.new is not None:
            self.drop(task)
        if why is not None:
            self.refuse(task.number, task.old.pid, why)
        return task

    def restart(self, iterator):
        """Puts off to the new epoch what needs the state of the old one."""
        task = self.abandon(iterator)
        if task is not None:
            self.todo.insert(0, (task.number, task.old.pid, task.mode))


def begin(recycler, iterator):
    """Says in the recycler of a new iterator whether its workers have states, and why they cannot be replaced, if so."""
    parts = recycler.torch
    recycler.why = parts.why or unknown(iterator, parts)
    if recycler.why is not None:
        return
    states = [iterator._worker_snapshots[iterator._worker_key(k)].get_state() for k in range(iterator._num_workers)]
    recycler.states = iterator._dataset_kind != 0 or any(state[parts.module._DATASET_STATE] is not None for state in states)
    if not recycler.states:
        return
    if not iterator._snapshot_interval:
        recycler.why = "snapshot_every_n_steps is 0: the loader takes no states"
    for state in states:
        recycler.why = recycler.why or missing(state, iterator, parts.module)
    recycler.why = recycler.why or forgets(iterator, parts.module)


def unknown(iterator, parts):
    """Says what of a new iterator is not as known, or None."""
    if type(iterator) is not getattr(parts.module, ITERATOR):
        return "its iterator is not torchdata's own"
    for name in _KNOWN:
        if not hasattr(iterator, name):
            return "torchdata's iterator has no %s" % name
    for worker_id in range(iterator._num_workers):
        snapshot = iterator._worker_snapshots.get(iterator._worker_key(worker_id))
        for name in _SNAPSHOT:
            if not hasattr(snapshot, name):
                return "torchdata's iterator has no %s of its workers" % name
    setattr(iterator, _STATE, None)
    return recycle.unknown(iterator, parts.filled)


def missing(state, iterator, module):
    """Says that a worker's state does not hold its place in an iterable data set, or None."""
    if iterator._dataset_kind == 0:
        return None
    fetcher = state[module._FETCHER_STATE]
    if fetcher is None or (state[module._DATASET_STATE] is None and fetcher[module._DATASET_ITER_STATE] is None):
        return "iterable dataset: it has no state_dict and load_state_dict"
    return None


def forgets(iterator, module):
    """Says what of an iterable data set its state leaves out, or None."""
    dataset = iterator._dataset
    if iterator._dataset_kind == 0:
        return None
    for value in [dataset] + list(getattr(dataset, "__dict__", {}).values()):
        if str(type(value).__module__).split(".")[0] == "datasets":
            return "iterable dataset: the state of a Hugging Face dataset leaves out its shuffle buffer"
    if iterator._persistent_workers and not isinstance(dataset, module.Stateful):
        return iterable.keeps(dataset)
    return None


def differs(snapshot, delta, module):
    """Says whether what a replacement said changes the snapshot it was given."""
    fetcher = delta.get(module._FETCHER_STATE) or {}
    for known, change in ((snapshot._incr_dataset_state, delta.get(module._DATASET_STATE)),
                          (snapshot._incr_fetcher_iter_state, fetcher.get(module._DATASET_ITER_STATE))):
        for key, value in (change or {}).items():
            if key not in known.flat_state or not _same(known.flat_state[key], value):
                return True
    return False


def _same(a, b):
    """Compares values that torchdata could not, such as tuples with arrays in them; both came through a pickle."""
    return pickle.dumps(a) == pickle.dumps(b)


def _last_line(error):
    """Returns what a worker's exception says, for people."""
    lines = str(getattr(error, "exc_msg", error)).strip().splitlines()
    return lines[-1][:200] if lines else "?"
