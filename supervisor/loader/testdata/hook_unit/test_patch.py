"""Each place in which torch calls the hook, where what the hook does there raises: the program gets what it gets bare."""
import os
import sys
import types
import unittest

import hook
from _rsswarden import epoch, iterators, patch, recycle


class Fetcher:
    auto_collation, dataset = True, None

    def fetch(self, index):
        return "batch", list(index)


class Iterator:
    """The iterator that has workers, as far as the hook wraps it."""

    _dataset_kind, _shutdown, come = 0, False, None  # what has come from a worker

    def __init__(self, loader, *more, **named):
        self.did = [("init", loader, more, named)]
        self._task_info, self._workers, self._workers_status = {}, [], []

    def _next_data(self):
        return "next"

    def _try_get_data(self, timeout=5.0):
        return (False, timeout) if self.come is None else (True, self.come)

    def _reset(self, loader, first_iter=False):
        self.did.append(("reset", loader, first_iter))
        return "reset"

    def _shutdown_workers(self):
        self.did.append("shutdown")
        return "shutdown"


class Patch(unittest.TestCase):
    def setUp(self):
        patch._load()
        for name in ("_off", "_torch", "_process", "_here", "_is_first"):
            self.addCleanup(setattr, patch, name, getattr(patch, name))
        self.fetcher = type("Fetcher", (Fetcher,), {"fetch": patch._Fetch(Fetcher.fetch)})()
        self.kind = type("Iterator", (Iterator,), {name: vars(Iterator)[name] for name in vars(Iterator) if not name.startswith("__") or name == "__init__"})
        patch._patch_ends(self.kind, patch._first, "made")
        iterators.wrap(self.kind)
        self.side = hook.Side()
        self.process = types.SimpleNamespace(pid=os.getpid(), side=self.side, growth=None, rest=0.0, next=0.0, recyclers=(), version=0, taken=set(),
                                             fetches=True, worker=True, met=0, trimmer=self, quiet=0.0, collector=self)
        patch._process, patch._here = self.process, lambda: self.process
        patch._torch = types.SimpleNamespace(utils=types.SimpleNamespace(python_exit_status=False), read=lambda: False, multiprocessing=None)

    it = None  # the iterator that was made last

    def budget(self):
        """Is a trimmer's and a collector's, as is requests."""

    requests = budget

    def made(self):
        """Returns an iterator that was made while the hook was off, with a recycler that has nothing to do."""
        patch._off = True
        it = self.kind("loader", 1, x=2)
        patch._off = False
        it._rsswarden = recycle.Recycler(self.side, 1, None, None)
        self.it = it
        return it

    def again(self):
        """Has everything be looked at again."""
        patch._off = False
        self.process.rest = self.process.next = 0.0
        self.process.version = -1
        if self.it is not None:
            self.it._rsswarden.rest = 0.0

    def each(self, name, entry, want, *faults):
        """Calls an entry as it is, and with each of faults, functions as (owner, name), raising in turn: it returns want each time, and then the hook is off."""
        self.again()
        self.assertEqual(entry(), want)
        self.assertFalse(patch._off, name)
        for owner, of in faults:
            with self.subTest("%s: %s raises" % (name, of)):
                self.again()
                was = getattr(owner, of)
                setattr(owner, of, hook.fails)
                try:
                    self.assertEqual(entry(), want)
                finally:
                    setattr(owner, of, was)
                self.assertTrue(patch._off, "it was not reached")

    def test_a_batch_is_fetched(self):
        fetch = lambda: self.fetcher.fetch([3, 4])
        self.each("fetch", fetch, ("batch", [3, 4]), (patch, "_before_fetch"), (patch, "_look"), (patch, "_here"))
        self.side.budget = 9
        self.each("with a budget", fetch, ("batch", [3, 4]), (patch, "_over"), (patch, "_watch"), (self, "budget"))
        self.process.growth = types.SimpleNamespace(batches=5, due=0, look=lambda: None)
        self.each("a worker's", fetch, ("batch", [3, 4]), (self.process.growth, "look"))

    def test_an_iterator_is_made(self):
        kind = self.kind
        for owner, of in ((patch.sharing, "warn"), (patch.copies.Start, "of"), (iterators, "made")):
            self.addCleanup(setattr, owner, of, vars(owner)[of])
            setattr(owner, of, lambda *given: None)
        for owner, of in ((patch, "_before_init"), (patch, "_made"), (patch, "_load"), (patch.sharing, "warn"), (patch.copies.Start, "of"), (iterators, "made")):
            made = []
            self.each("made", lambda: made.append(kind("loader", 1, x=2)) or made[-1].did, [("init", "loader", (1,), {"x": 2})], (owner, of))

    def test_a_batch_is_asked_for(self):
        it = self.made()
        self.each("next", lambda: it._next_data(), "next", (patch, "_look"), (patch, "_here"))
        self.side.version = 1
        self.each("a new ctl file", lambda: it._next_data(), "next", (iterators, "_give_out"))

    def test_none_has_come(self):
        it = self.made()
        self.each("none", lambda: it._try_get_data(timeout=1), (False, 1), (patch, "_recycler"), (iterators, "_dead"))

    def test_an_epoch_begins(self):
        it = self.made()
        self.each("map", lambda: it._reset("loader"), "reset", (patch, "_recycler"), (iterators, "_replaced"), (iterators, "_settle"), (epoch, "settle"), (iterators, "_reopen"), (epoch, "reopen"))
        it._dataset_kind = 1
        self.each("iterable", lambda: it._reset("loader"), "reset", (patch, "_recycler"), (iterators, "_renewal"), (iterators, "_poll"))
        self.assertEqual(set(it.did[1:]), {("reset", "loader", False)})

    def test_torchdata_asks_for_a_batch_and_begins_an_epoch(self):
        it = self.made()
        iterators.wrap_stateful(self.kind)
        recycler = it._rsswarden
        recycler.gate, recycler.torch, recycler.restart = None, types.SimpleNamespace(is_answer=lambda data: False), lambda iterator: None
        self.each("none", lambda: it._try_get_data(0), (False, None), (patch, "_recycler"), (iterators, "_dead"))
        self.each("an epoch", lambda: it._reset("loader"), "reset", (patch, "_recycler"), (recycler, "restart"), (iterators, "_replaced"))
        it.come = "data"
        self.each("one has come", lambda: it._try_get_data(1), (True, "data"), (recycler.torch, "is_answer"))

    def test_an_iterator_ends(self):
        for owner, of in ((patch, "_recycler"), (epoch, "Ending"), (epoch.Ending, "finish"), (self.side, "say")):
            it = self.made()
            self.each("end", lambda: it._shutdown_workers(), "shutdown", (owner, of))
            self.assertEqual(it.did[-1], "shutdown")

    def test_while_the_modules_are_cleared(self):
        it = self.made()
        names = {name: value for name, value in vars(patch).items() if name != "__builtins__"}
        try:
            vars(patch).update(dict.fromkeys(names))
            self.assertEqual(it._shutdown_workers(), "shutdown")
        finally:
            vars(patch).update(names)

    def test_torch_has_another_shape(self):
        sys.modules.setdefault("torch", types.ModuleType("torch"))
        self.addCleanup(sys.modules.pop, "torch")
        patch._is_child = lambda: False
        made = patch._Torch(types.ModuleType("torch.utils.data.dataloader"))
        self.assertIn("torch has no ", made.why)
        self.assertFalse(made.read())
