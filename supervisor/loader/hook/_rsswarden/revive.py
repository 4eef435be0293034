"""Goes on where a worker of a loader over a map-style dataset was killed.

A worker takes with it the batches that it was given and had not delivered. Their indices
are known here, so another worker is started in its place and given them again. torch's
own check would end the loop: it looks for dead workers where the queue of results is
empty, and in its handler of SIGCHLD. Both come here first, and what is not revived is left
to them as it is: torch raises what it always raises.

A worker that is killed while it delivers leaves half a message in the pipe of results and
holds its lock, or that of the event that ends the workers: then nobody can deliver. So
nothing here ever waits inside a message, and a lock that was not seen free since a worker
died, over a pipe that stays silent, has all workers of the loader ended and started again
with another pipe and another event.

A batch over which three workers have died is not tried again.

With a torch that is to be tried first, only the indices are kept until that went well.
"""
import errno
import os
import pickletools
import queue
import re
import select
import signal
import struct
import threading
import time
import weakref
from multiprocessing import connection, queues

from _rsswarden import birth, channel, epoch, guard, oom, patch

_OOM, _ANY = 1, 2  # of channel.setting: whose work is done again
TRIES = 3  # workers that may die over one batch, or without a batch between them
_LOOK = 1.0  # seconds between two looks at the workers
_SOON = 0.05  # the same while nothing comes since one has died
_DYING = 10.0  # seconds for which a worker that is on its way out is waited for
_CALM = 0.5  # seconds until workers that live are believed: one may have taken the dead one's place just now
_PINNED = 0.25  # seconds until a death that is known is met while the pin thread is waited for
_STUCK = 0.5  # seconds for which a lock is held over a silent pipe, until all workers are started again
_HUNG = 300.0  # seconds of waiting without a batch since a death, until torch's error is raised: the dead may hold a lock of the program's
_RETRIES = (0.1, 0.4, 1.0)  # seconds until a fork that was refused is tried again
_CHUNK = 1 << 20
_AHEAD = 64  # batches that may have come before their indices are dropped, while a trial is waited for
_KILLED = re.compile(r"DataLoader worker \(pid (\d+)\)")
_QUEUE = ("_reader", "_writer", "_wlock", "_send_bytes", "_recv_bytes", "_poll")  # what of a queue is of its pipe

# What of the iterator, and of the queue and the event in it, is used here before recycle has looked, or not in recycle.
_RESTS_ON = ("_index_queues", "_data_queue", "_timeout", "_shared_seed", "_workers_done_event._cond._lock._semlock", "_worker_result_queue._wlock._semlock",
             "_worker_result_queue._sem") + tuple("_worker_result_queue." + name for name in _QUEUE)

_TAKES = queues.Queue.get, queues.Queue.put  # of torch's queues; a program may have its own

_lives = weakref.WeakSet()
_checked = None  # the function of torch's that its handler of SIGCHLD calls


class _Pipe:
    """The reading end of a queue of results, and what has come of a message."""

    def __init__(self, reader, number):
        self.reader, self.held = reader, bytearray()
        self.number = number  # of the pipes of this queue
        self.fd, self.poll = reader.fileno(), select.poll()
        self.poll.register(self.fd, select.POLLIN)


class Reader:
    """Takes messages from the queue of results without ever waiting inside one."""

    def __init__(self, results):
        self.results = weakref.ref(results)
        self.bell = connection.Pipe(duplex=False)
        for end in self.bell:
            os.set_blocking(end.fileno(), False)
        self.watch(results._reader, 0)
        self.heard = time.monotonic()  # when something came last

    def watch(self, reader, number):
        """Takes messages from that pipe from now on."""
        pipe = _Pipe(reader, number)
        pipe.poll.register(self.bell[0].fileno(), select.POLLIN)
        self.pipe = pipe

    def ring(self):
        """Has take find nothing at once, in whatever thread it waits."""
        try:
            os.write(self.bell[1].fileno(), b"!")
        except BlockingIOError:
            pass  # it rings already

    def take(self, wait):
        """Returns the pipe's number and the text of the next message; raises queue.Empty where that is not whole after wait seconds."""
        end = time.monotonic() + wait
        pipe = self.pipe
        held = pipe.held
        while True:
            size, head = 4, 0
            if len(held) >= 4:
                head, (size,) = 4, struct.unpack_from("!i", held)
                if size == -1:
                    head, size = 12, 0
                    if len(held) >= 12:
                        size, = struct.unpack_from("!Q", held, 4)
                size += head
            if head and len(held) >= size:
                break
            ready = pipe.poll.poll(max(end - time.monotonic(), 0) * 1e3)
            if not ready:
                raise queue.Empty
            if ready[0][0] != pipe.fd:
                os.read(ready[0][0], _CHUNK)
                raise queue.Empty
            data = os.read(pipe.fd, min(max(size, head) - len(held), _CHUNK))
            if not data:
                raise EOFError if pipe is self.pipe else queue.Empty
            held += data
            self.heard = time.monotonic()
        if pipe is not self.pipe:
            raise queue.Empty  # of workers that were all ended
        pipe.held = bytearray()
        results = self.results()
        if results is not None:
            results._sem.release()
        return pipe.number, memoryview(held)[head:]


class Given(dict):
    """The indices of each batch that was given out and has not come, by its number."""

    def __init__(self, iterator):
        super().__init__()
        self.iterator = weakref.ref(iterator)
        self.next = 0.0  # when it is looked again whether torch was tried
        for index_queue in iterator._index_queues:
            self.record(index_queue)

    def record(self, index_queue):
        """Keeps the indices that are put on an index queue."""
        reference = weakref.ref(index_queue)

        def put(task, *arguments, **keywords):
            patch._guarded(self.keep, task)
            index_queue = reference()
            return type(index_queue).put(index_queue, task, *arguments, **keywords)

        index_queue.put = put

    def keep(self, task):
        if type(task) is not tuple or len(task) != 2 or type(task[0]) is not int:
            return
        waiting = getattr(self.iterator(), "_task_info", ())  # torch makes it after begin; one without it is never revived
        if len(self) > 2 * len(waiting) + _AHEAD:  # no Life is there that drops what has come
            for number in [number for number in self if number not in waiting]:
                del self[number]
        self[task[0]] = task[1]


class Life:
    """What one iterator needs to go on without a worker."""

    def __init__(self, iterator, mode, torch_parts):
        self.iterator, self.mode, self.torch = weakref.ref(iterator), mode, torch_parts
        self.pid = os.getpid()
        self.given = iterator._rsswarden_given
        self.again = set()  # batches that were given out again
        self.tries = {}  # how many workers have died over a batch
        self.vain = 0  # … since a batch came
        self.died = False  # one has, and was not met
        self.pending = False  # one has, and is not replaced yet
        self.over = False  # no more are started; torch ends the loop
        self.ended = False  # the iterator ends
        self.hung = None  # the PID of the last that died, where nothing came for very long since
        self.resuming, self.resumed = False, 0
        self.suspects = None  # locks that were not seen free since a worker died, None where none has
        self.met = 0.0  # when a death was met last
        self.waited = 0.0  # seconds of waiting since then, or since a batch came
        self.longest = 0.0  # for which a batch was waited for, before any died
        self.looked = 0.0
        self.mourned = set()  # workers that have died and were counted
        self.gone = set()  # PIDs of workers that have died, of which torch knows no more
        self.known = {}  # by worker that has died: why it may be replaced, empty where it may not
        self.counter = oom.counter()
        self.kills = oom.kills(self.counter)
        results = iterator._worker_result_queue
        self.reader = Reader(results)  # may fail: nothing has been changed yet
        self.turn = threading.RLock()  # of one thread that waits, as the queue's own get has it
        self.pinned, self.patience = None, _LOOK  # the queue of the pin thread; seconds for which a batch is waited for without a look
        self.ready = True  # the pin thread, if any, has left torch's own get, which would wait for the rest of a dead worker's message
        if iterator._data_queue is not results:
            self.pinned, self.patience, self.ready = weakref.ref(iterator._data_queue), _PINNED, False
            results.get = self.get_to_pin
        iterator._data_queue.get = self.get

    # What torch calls in place of the queues' own get.

    def get(self, block=True, timeout=None):
        """Waits for what torch's _try_get_data waits for, and meets deaths meanwhile."""
        if not self.turn.acquire(block, timeout if block and timeout is not None else -1):
            raise queue.Empty
        try:
            return self._get(block, timeout)
        finally:
            self.turn.release()

    def _get(self, block, timeout):
        began = time.monotonic()
        end = began + (1e9 if timeout is None else timeout) if block else began
        while True:
            now = time.monotonic()
            if self.died or self.suspects or now - self.looked > _LOOK:
                self._met()
            if self.hung is not None:
                raise RuntimeError("DataLoader worker (pid(s) %d) exited unexpectedly" % self.hung)
            if self.resumed:
                self.resumed -= 1
                return self.torch.part("worker")._ResumeIteration(self.iterator()._shared_seed), None
            try:
                data = self._take(min(max(end - now, 0), _SOON if self.suspects else self.patience))
            except queue.Empty:
                self.waited += time.monotonic() - now
                self._met()
                if self.met > began and timeout is not None:
                    end = self.met + timeout  # which is the program's for one worker
                if self._torch_ends() or time.monotonic() >= end and not self.reader.pipe.held and not (block and patch._guarded(self._goes_on)):
                    raise
                continue
            if self._wanted(data):
                self.longest = max(self.longest, time.monotonic() - began if self.suspects is None else 0)
                return data

    def _torch_ends(self):
        """Says whether torch is to look for dead workers at once. After a failure of ours none need be dead: it waits as it would."""
        return self.over and (self.pending or self.ended or self.hung is not None)

    def _goes_on(self):
        """Says whether torch would only wait again: while it looks at the workers, one may die, and end the loop."""
        iterator = self.iterator()
        if patch._off:
            return False
        return self.pending or iterator._timeout <= 0 and (self.pinned is None or iterator._pin_memory_thread.is_alive())

    def _take(self, wait):
        if self.pinned is not None:
            pinned = self.pinned()
            number, data = type(pinned).get(pinned, timeout=wait)
            pipe = 0  # of what the thread waited for before it came here
            if type(number) is tuple:
                pipe, number = number
            if pipe != self.reader.pipe.number:
                raise queue.Empty  # of workers that were all ended; numbers may have begun at 0 since
            return number, data
        pipe, message = self.reader.take(wait)
        try:
            return queues._ForkingPickler.loads(message)
        except Exception as error:
            if not self._lost(pipe, message, error):
                raise
            raise queue.Empty

    def get_to_pin(self, block=True, timeout=None):
        """Waits for what the pin thread waits for."""
        self.ready = True
        end = time.monotonic() + (1e9 if timeout is None else timeout)
        while True:
            try:
                pipe, message = self.reader.take(min(max(end - time.monotonic(), 0), _SOON if self.suspects else _LOOK))
            except queue.Empty:
                if self._torch_ends() or time.monotonic() >= end and not self.reader.pipe.held:
                    raise
                continue
            try:
                number, data = queues._ForkingPickler.loads(message)
                if type(number) is tuple:
                    continue  # the nudge, which was not needed
                return (pipe, number), data
            except Exception as error:
                if not self._lost(pipe, message, error):
                    raise

    def nudge(self):
        """Has the pin thread leave torch's own get at once, while no worker has work: by a message that _take drops."""
        results = self.iterator()._worker_result_queue
        if results._wlock.acquire(False):
            try:
                results._sem.acquire(False)
                results._writer.send_bytes(queues._ForkingPickler.dumps(((-1, None), None)))
            finally:
                results._wlock.release()

    def _lost(self, pipe, message, error):
        """Says whether a message that could not be unpickled is one of a worker that has died: a tensor is fetched from the worker."""
        number = _number(message)
        if number is None:
            return False
        fetched = isinstance(error, (OSError, EOFError, RuntimeError))
        end, calm = (time.monotonic() + (wait if fetched else 0) for wait in (_DYING, _CALM))
        while True:
            iterator = self.iterator()
            if iterator is None or pipe != self.reader.pipe.number or number in self.again:
                return True
            info = iterator._task_info.get(number)
            if info is None or len(info) != 1:
                return True  # it has come
            recycler = patch._recycler(iterator)
            old = [task.old for task in list(recycler.leaving) if task.worker_id == info[0]] if recycler is not None else []
            old.append(iterator._workers[info[0]])
            dead = [process for process in old if _has_died(process)]
            if dead:
                # Whoever waits for the batch has it done again.
                return all([self.meant(process) for process in dead])
            now = time.monotonic()
            if now >= end or now >= calm and not any([_is_dying(process.pid) for process in old]):
                return False
            time.sleep(0.01)

    def _wanted(self, data):
        """Says whether a message is for torch: not where its batch has come, of a worker that died since."""
        number = data[0] if type(data) is tuple and data else None
        if type(number) is not int:
            return True
        info = self.iterator()._task_info.get(number)
        if info is None or len(info) != 1:
            return False
        for kept in (self.given, self.tries):
            kept.pop(number, None)
        self.again.discard(number)
        self.vain, self.waited = 0, 0.0
        return True

    # Deaths.

    def _met(self):
        """Meets the deaths of workers, guarded; whatever fails leaves the loop to torch."""
        if self.over:
            return
        if patch._off:
            self.over = self.died or self.suspects is not None
            return
        self.looked, self.died = time.monotonic(), False
        met = False
        try:
            met = self._meet()
        except Exception as error:
            self.died = True
            if not patch._failed(error):
                raise
        self.over = not met

    def _meet(self):
        """Returns whether the loop can go on."""
        iterator = self.iterator()
        recycler = patch._recycler(iterator)
        dead = _dead(iterator, recycler)
        self.pending = bool(dead)
        if not dead:
            return self.suspects is None or not self._hangs()
        if recycler is None or recycler.why or self.torch.untried() or not all([self.meant(process) for _, process, _ in dead]):
            return False
        if not self.ready:
            return self.waited < self.torch.utils.MP_STATUS_CHECK_INTERVAL + _LOOK  # after which that get has returned
        new = [one for one in dead if one[1] not in self.mourned]
        if new:
            self.waited = 0.0
            self.suspects = [iterator._worker_result_queue._wlock, iterator._workers_done_event._cond._lock]
            self.mourned = {process for _, process, _ in dead}
            if not self._try(new):
                return False
        if self.resuming:
            self._again(iterator, recycler, dead)
            self.resumed = iterator._num_workers
        elif self._free():
            self._replace(iterator, recycler, dead)
        elif min(self.waited, time.monotonic() - self.reader.heard) > _STUCK:
            self._again(iterator, recycler, dead)
        else:
            return True
        self.suspects, self.met, self.waited, self.pending = [], time.monotonic(), 0.0, False
        self.gone.clear()
        return True

    def _try(self, dead):
        """Counts the deaths; says whether it is worth another try."""
        for _, _, owed in dead:
            self.vain += 1
            if owed:
                self.tries[owed[0]] = self.tries.get(owed[0], 0) + 1
                if self.tries[owed[0]] >= TRIES:
                    return False
        return self.vain <= TRIES * len(self.iterator()._workers)

    def _free(self):
        """Says whether each lock was seen free since the last death: a dead worker's never is."""
        self.suspects = [lock for lock in self.suspects if lock._semlock._get_value() == 0]
        return not self.suspects

    def _hangs(self):
        """Says whether no batch has come for very long since a worker died."""
        if self.waited > max(_HUNG, 10 * self.longest):
            self.hung = next(iter(self.mourned)).pid
        return self.hung is not None

    def meant(self, process):
        """Says why a worker that has died may be replaced, or nothing where it may not."""
        if process not in self.known:
            code, why = _exit_code(process), ""
            if code == -signal.SIGKILL and oom.explain(self.counter, self.kills, process):
                why = "SIGKILL, and the kernel counts an OOM kill"
            elif self.mode == _ANY:
                why = cause(code)
            self.known[process] = why
        return self.known[process]

    def noticed(self, pid):
        """Says whether that is a worker whose death is met here; it is met where a batch is waited for."""
        iterator = self.iterator()
        recycler = patch._recycler(iterator) if iterator is not None else None
        if recycler is None or patch._off or self.over and not self.ended:
            return False
        workers = list(iterator._workers) + [task.old for task in recycler.leaving]
        if not any(w.pid == pid and self.meant(w) for w in workers):
            return False
        self.died = True
        self.reader.ring()
        self.gone.add(pid)
        signals = self.torch.utils.signal_handling
        signals._remove_worker_pids(id(iterator))
        signals._set_worker_pids(id(iterator), tuple(w.pid for w in workers if w.pid not in self.gone))
        return True

    # New workers.

    def _start(self, iterator, recycler, worker_id):
        why = birth.forbids(recycler.context)
        if why is not None:
            raise OSError(errno.EAGAIN, why)
        recycler.generation += 1
        seed = iterator._base_seed + recycler.workers * recycler.generation
        for pause in _RETRIES + (None,):
            try:
                new, index_queue, _ = birth.start(iterator, worker_id, seed, recycler.context, self.torch.loop, self.torch.filled, None)
                break
            except OSError as error:
                if pause is None or not guard.ours(error):
                    raise
                time.sleep(pause)
        # The old queue ends once it is let go; Python 3.8 would complain of what it had not written yet.
        iterator._workers[worker_id], iterator._index_queues[worker_id] = new, index_queue
        iterator._workers_status[worker_id] = True
        return new

    def _give(self, iterator, worker_id, owed):
        self.again.update(owed)
        for number in owed:
            iterator._index_queues[worker_id].put((number, self.given[number]))

    def _replace(self, iterator, recycler, dead):
        """Replaces the workers that have died, and no other."""
        _let_go(iterator, recycler, {process for _, process, _ in dead})
        for worker_id, process, owed in dead:
            began = time.perf_counter()
            new = iterator._workers[worker_id]
            if process is new:
                new = self._start(iterator, recycler, worker_id)
            self._give(iterator, worker_id, owed)
            self._say(recycler, worker_id, process, new, owed, began)
        recycler._watch(iterator)

    def _again(self, iterator, recycler, dead):
        """Ends all workers and starts them again, with another pipe and another event."""
        began = time.perf_counter()
        epoch.reopen(recycler, iterator)
        signals = self.torch.utils.signal_handling
        signals._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False
        places = [k for k in range(len(iterator._workers)) if k not in recycler.empty]
        old = list(iterator._workers)
        everyone = {iterator._workers[k] for k in places} | {task.old for task in recycler.leaving}
        for process in everyone:
            process.kill()
        for process in everyone:
            process.join(5)
        _let_go(iterator, recycler, everyone)
        if recycler.helper is not None:
            recycler.unhelp(birth.Refused("all workers were restarted"))  # it has the pipe and the event of before
        results, fresh = iterator._worker_result_queue, recycler.context.Queue()
        self.reader.watch(fresh._reader, self.reader.pipe.number + 1)  # before the old one is closed
        for name in _QUEUE:
            setattr(results, name, getattr(fresh, name))
        iterator._workers_done_event = recycler.context.Event()
        died = {worker_id: process for worker_id, process, _ in dead}
        owed = {k: sorted(i for i, info in iterator._task_info.items() if info == (k,)) for k in places}
        for k in places:
            new = self._start(iterator, recycler, k)
            self._give(iterator, k, owed[k])
            self._say(recycler, k, old[k], new, owed[k], began, died.get(k))
            began = time.perf_counter()
        signals._set_worker_pids(id(iterator), tuple(w.pid for w in iterator._workers))
        iterator._worker_pids_set = True
        recycler._watch(iterator)

    def _say(self, recycler, worker_id, old, new, owed, began, died=None):
        why, code = self.known.pop(old, None) or self.known.pop(died, "restarted with another"), old.exitcode
        recycler.side.say("revived", n=recycler.number, k=worker_id, worker=old.pid, new=new.pid, exit=-1 if code is None else code,
                          count=len(owed), why=why, pause_ms=(time.perf_counter() - began) * 1e3)


def _has_died(process):
    return birth.ended(process) and not birth.unreported(process)


def _is_dying(pid):
    """Says whether a process is on its way out, past which it closes its files, or has gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb", 0) as file:
            data = file.read(4096)
        return bool(int(data[data.rindex(b")") + 1:].split()[6]) & 4)  # PF_EXITING
    except OSError:
        return True


def _exit_code(process):
    """Returns the exit status of a worker that has died; another thread may be about to learn it."""
    for _ in range(20):
        if process.exitcode is not None:
            break
        time.sleep(0.001)
    return process.exitcode


def _dead(iterator, recycler):
    """Returns the workers that have died: their place, the process, and the numbers of the batches that they owe, in order."""
    owed = {}
    for number, info in sorted(iterator._task_info.items()):
        if len(info) == 1:
            owed.setdefault(info[0], []).append(number)
    dead, left = [], []
    for task in recycler.leaving if recycler is not None else ():
        if not task.told:
            its = [number for number in owed.get(task.worker_id, ()) if number in task.owed]
            owed[task.worker_id] = [number for number in owed.get(task.worker_id, ()) if number not in task.owed]
            if _has_died(task.old):
                left.append((task.worker_id, task.old, its))
    for worker_id, process in enumerate(iterator._workers):
        if iterator._workers_status[worker_id] and _has_died(process):
            dead.append((worker_id, process, owed.get(worker_id, [])))
    return dead + left  # the latter's work goes to the worker in the place, which works by then


def _let_go(iterator, recycler, processes):
    """Has the recycler do without workers that have ended."""
    for task in recycler.leaving:
        if task.old in processes and not task.told:
            task.owed, task.told = set(), time.monotonic()
    task = recycler.task
    if task is not None and task.old in processes:
        if task.asked is not None:
            recycler.answered(iterator, wait=True)
        recycler.task = None
        recycler.unskip(iterator)
        if task.new is not None:
            recycler.drop(task)
        recycler.refuse(task.number, task.old.pid, "process has ended")


def _number(message):
    """Returns the number of the batch in a message that cannot be unpickled: its first integer."""
    try:
        for operation, value, _ in pickletools.genops(bytes(message)):
            if operation.name in ("BININT", "BININT1", "BININT2", "LONG1"):
                return value
    except ValueError:
        pass
    return None


def cause(code):
    """Returns why a process ended, of its exit code."""
    if code is None:
        return "exit status unknown"
    if code >= 0:
        return "exit status %d" % code
    try:
        return signal.Signals(-code).name
    except ValueError:
        return "signal %d" % -code


# What is called of the iterator's methods, guarded.


def begin(iterator, torch_parts):
    """Has a new iterator go on where a worker dies, where that was asked for. Its workers are there, and have no work."""
    mode = channel.setting("revive")
    if mode not in (_OOM, _ANY) or iterator._dataset_kind != 0 or type(iterator) is not torch_parts._dataloader._MultiProcessingDataLoaderIter:
        return
    if not all(_has(iterator, name) for name in _RESTS_ON):
        return
    if any((type(one).get, type(one).put) != _TAKES for one in [iterator._worker_result_queue] + list(iterator._index_queues)):
        return
    if hasattr(torch_parts.utils.signal_handling, "_error_if_any_worker_fails"):
        why = torch_parts.untried()
        if torch_parts.why is None and not torch_parts.unrevived:
            iterator._rsswarden_given = Given(iterator)
            if why is None:
                iterator._rsswarden_given.next = float("inf")
                _live(iterator, mode, torch_parts)
                life = of(iterator)
                if life is not None and not life.ready:
                    life.nudge()


def _live(iterator, mode, torch_parts):
    _check(torch_parts.utils.signal_handling)
    try:
        life = Life(iterator, mode, torch_parts)
    except OSError as error:
        if not guard.ours(error):
            raise
        return  # no descriptor is left: as bare
    _lives.add(life)
    iterator._rsswarden_revive = life


def tried(iterator, torch_parts):
    """Has an iterator that waits for the trial of its torch go on where a worker dies from now on; says, once, that it does so."""
    given, now = iterator._rsswarden_given, time.monotonic()
    if now < given.next:
        return False
    given.next = now + _LOOK
    life = of(iterator)
    if life is None and torch_parts.untried() is None:
        if torch_parts.why is None and not torch_parts.unrevived:
            _live(iterator, channel.setting("revive"), torch_parts)
            life = of(iterator)
        if life is None:
            given.next = float("inf")
    if life is None or not life.ready:
        return False
    given.next = float("inf")
    return True


def _has(value, path):
    for name in path.split("."):
        if not hasattr(value, name):
            return False
        value = getattr(value, name)
    return True


def of(iterator):
    """Returns what keeps an iterator going, or None."""
    life = vars(iterator).get("_rsswarden_revive")
    return life if life is not None and life.pid == os.getpid() else None


def resume(iterator):
    """Makes ready for a new epoch of a persistent iterator, all of whose workers will answer."""
    life = of(iterator)
    if life is not None:
        for kept in (life.given, life.again, life.tries):
            kept.clear()
        life.resuming = True
    return life


def end(iterator, context):
    """Sees to it that the end of an iterator's workers does not wait for what a dead one holds."""
    life = of(iterator)
    if life is None:
        return
    life.over = life.ended = True  # whoever dies now owes nothing
    if not any(map(_has_died, iterator._workers)):
        return
    lock = iterator._workers_done_event._cond._lock
    if lock.acquire(timeout=_STUCK):
        lock.release()
        return
    life.torch.utils.signal_handling._remove_worker_pids(id(iterator))
    iterator._worker_pids_set = False
    iterator._workers_done_event = context.Event()
    for process in iterator._workers:
        process.kill()


def _check(signals):
    """Has torch's handler of SIGCHLD ask here first."""
    global _checked
    if _checked is None:
        _checked, signals._error_if_any_worker_fails = signals._error_if_any_worker_fails, _error_if_any_worker_fails


def _error_if_any_worker_fails():
    while True:
        try:
            return _checked()
        except RuntimeError as error:
            if not patch._guarded(_noticed, str(error)):
                raise


def _noticed(text):
    """Says whether torch's error is about a worker whose death is met here."""
    found = _KILLED.search(text)
    return found is not None and any(life.noticed(int(found.group(1))) for life in list(_lives) if life.pid == os.getpid())
