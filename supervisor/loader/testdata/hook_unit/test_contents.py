import collections
import os
import sys
import types
import unittest

import hook
from _rsswarden import contents


class Storage:
    def __init__(self, size, shared=False):
        self._cdata, self.size, self.shared = id(self), size, shared

    def is_shared(self):
        return self.shared

    def nbytes(self):
        return self.size


class Tensor:
    device = types.SimpleNamespace(type="cpu")

    def __init__(self, size=4, shared=False, of=None):
        self.storage = Storage(size, shared) if of is None else of.storage

    def untyped_storage(self):
        return self.storage


class Dataset:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Untouchable(Dataset):
    """Looks at nothing of it are allowed but those of the built-in types."""

    trap = property(hook.fails)
    __getattr__ = __getattribute__ = __iter__ = __hash__ = __eq__ = __bool__ = __repr__ = hook.fails


class TrapList(list):
    __iter__ = __len__ = __getitem__ = __bool__ = __eq__ = hook.fails


class Slots:
    __slots__ = ("x", "unset")

    def __init__(self, x):
        self.x = x


class Pickled(Dataset):
    __getstate__ = hook.fails


def torch():
    return types.SimpleNamespace(_C=types.SimpleNamespace(TensorBase=Tensor), Tensor=Tensor, nn=types.SimpleNamespace(Module=type("Module", (), {}), Parameter=type("Parameter", (Tensor,), {})))


class Contents(unittest.TestCase):
    def setUp(self):
        module = types.ModuleType("torch.utils.data.dataset")
        module.Dataset = Dataset
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)

    def found(self, dataset, seconds=10):
        return contents.Contents(torch(), dataset, False, seconds)

    def test_tensors_are_found_without_code_of_the_program(self):
        three, loop, one = lambda: [Tensor() for _ in range(3)], [], Tensor(8)
        loop.extend([loop, {"loop": loop}, three()])
        trap = Untouchable.__new__(Untouchable)
        object.__getattribute__(trap, "__dict__")["items"] = three()
        nested = Dataset(items=three())
        for _ in range(30):
            nested = Dataset(inner=nested)
        for name, dataset, count, size, more in (
                ("list", Dataset(items=three()), 3, 12, False), ("tuple", tuple(three()), 3, 12, False), ("set", Dataset(x=set(three())), 3, 12, False),
                ("dict", Dataset(x=collections.OrderedDict(enumerate(three()))), 3, 12, False), ("slots", Dataset(x=[Slots(t) for t in three()]), 3, 12, False),
                ("shared by two", Dataset(a=one, b=[one, Tensor(of=one)]), 1, 8, False), ("shared already", Dataset(x=Tensor(4, True)), 0, 0, False),
                ("loop", Dataset(items=loop), 3, 12, False), ("too deep", Dataset(x=[[[[three()]]]]), 0, 0, True), ("nested", nested, 0, 0, True),
                ("untouchable", Dataset(x=trap), 3, 12, False), ("trapped list", Dataset(x=TrapList(three())), 3, 12, False),
                ("pickles itself", Dataset(x=Pickled(y=three()), z=three()), 3, 12, True), ("others", Dataset(a=len, b=os, c=Dataset, d="x", e=None), 0, 0, False)):
            with self.subTest(name):
                c = self.found(dataset)
                self.assertEqual((c.storages, c.bytes, c.more), (count, size, more))

    def test_it_ends_in_time(self):
        c = self.found(Dataset(x=list(range(1 << 20)), y=[Tensor()]), seconds=0.001)
        self.assertTrue(c.more)
        self.assertLess(c.visited, 1 << 20)
