"""Has the hook look for tensors in objects of every kind, and prints what it found, as JSON.

What must not run (properties, __getattr__, __iter__ and their like) ends the
program here.
"""
import collections
import dataclasses
import functools
import io
import json
import os
import random
import sys
import threading
import types
import warnings

warnings.filterwarnings("ignore")

import numpy
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

package = types.ModuleType("_rsswarden")
package.__path__ = [os.path.join(sys.argv[1], "_rsswarden")]
sys.modules["_rsswarden"] = package
from _rsswarden import contents

N = 500


def tensors(n=N):
    return [torch.zeros(80) for _ in range(n)]


def fail(*arguments, **keywords):
    print("code of the program ran")
    os._exit(9)


class Data(Dataset):
    def __init__(self, **fields):
        self.__dict__.update(fields)

    __len__ = __getitem__ = fail


class Untouchable(Data):
    """Looks at nothing of it are allowed but those of the built-in types."""

    trap = property(fail)
    __getattr__ = __getattribute__ = __iter__ = __hash__ = __eq__ = __bool__ = __contains__ = __repr__ = fail


class TrapList(list):
    __iter__ = __len__ = __getitem__ = __bool__ = __eq__ = fail


class TrapDict(dict):
    __iter__ = __len__ = __getitem__ = values = items = keys = __bool__ = fail


class TrapSet(set):
    __iter__ = __len__ = fail


class TrapTuple(tuple):
    __iter__ = __len__ = __getitem__ = fail


class Hidden:
    """Has a __dict__ and a class that are not its own to tell."""

    def __init__(self, x):
        object.__setattr__(self, "x", x)

    __dict__ = property(fail)
    __class__ = property(fail)


class Meta(type):
    __getattribute__ = __instancecheck__ = __eq__ = __hash__ = fail


class Unhashable(type):
    __eq__ = fail


class Strange(metaclass=Meta):
    pass


class Stranger(metaclass=Unhashable):
    pass


class Slots:
    __slots__ = ("x", "unset")

    def __init__(self, x):
        self.x = x


class Pickled(Data):
    def __getstate__(self):
        fail()


class Reduced(Data):
    def __reduce__(self):
        fail()


class Sub(torch.Tensor):
    __torch_function__ = classmethod(fail)


@dataclasses.dataclass
class Item:
    x: torch.Tensor
    label: int


def found(dataset, sends=False, seconds=10):
    c = contents.Contents(torch, dataset, sends, seconds)
    return {"tensors": c.storages, "bytes": c.bytes, "empty": c.empty, "sent": c.sent, "more": c.more, "visited": c.visited}


def cases():
    one = torch.zeros(N, 80)
    loop = []
    loop.extend([loop, loop, {"loop": loop}, tensors()])
    ring = Data()
    ring.__dict__.update(me=ring, items=tensors(), others=[Data(back=ring)])
    deep = [[[[tensors()]]]]
    nested = Data(items=tensors())
    for _ in range(30):
        nested = Data(inner=nested)
    yield "list", Data(items=tensors())
    yield "a list itself", tensors()
    yield "tuple", Data(items=tuple(tensors()))
    yield "dict", Data(items=dict(enumerate(tensors())))
    yield "set", Data(items=set(tensors()), others=frozenset(tensors()))
    yield "pairs", Data(items=[(t, n) for n, t in enumerate(tensors())])
    yield "named tuples", Data(items=[collections.namedtuple("P", "x y")(t, 1) for t in tensors()])
    yield "ordered", Data(items=collections.OrderedDict(enumerate(tensors())), more=collections.defaultdict(list, {1: tensors()}))
    yield "items", Data(items=[Item(t, 1) for t in tensors()])
    yield "records", Data(items=[{"x": t, "y": [t, 1.0]} for t in tensors()])
    yield "slots", Data(items=[Slots(t) for t in tensors()])
    yield "parameters", torch.nn.ParameterList(tensors())
    yield "module", Data(model=torch.nn.ParameterList(tensors()))
    yield "subset", Subset(Data(items=tensors()), range(9))
    yield "subset of pairs", Subset(Data(items=[(t, 1) for t in tensors()]), list(range(9)))
    yield "concatenated", ConcatDataset([Subset(_sized(items=tensors()), [1]), _sized(items=[(t, 0) for t in tensors()])])
    yield "tensor dataset", TensorDataset(*tensors(N)) if N else None
    yield "shared by two", Data(a=one, b=Data(c=list(one)), d=[one[3:], one.t()])
    yield "the same again", Data(items=tensors(1) * N)
    yield "empty", Data(items=[torch.zeros(0) for _ in range(N)])
    yield "shared already", Data(items=[torch.zeros(80).share_memory_() for _ in range(N)])
    yield "big", Data(items=torch.zeros(1000, 1000))
    yield "numpy", Data(items=[numpy.zeros(80) for _ in range(N)], one=numpy.zeros(N))
    yield "innocents", Data(f=io.BytesIO(b"x"), lock=threading.Lock(), fn=len, m=json, cls=Data, part=functools.partial(len, []),
                            rng=random.Random(1), gen=torch.Generator(), method=tensors, none=None, path="/", generator=(i for i in "ab"))
    yield "loop", Data(items=loop)
    yield "ring", ring
    yield "deep", Data(items=deep)
    yield "nested", nested
    trap = Untouchable.__new__(Untouchable)
    object.__getattribute__(trap, "__dict__")["items"] = tensors()
    yield "untouchable", Data(trap=trap)
    yield "trapped containers", Data(a=TrapList(tensors()), b=TrapDict(enumerate(tensors())), c=TrapSet(tensors()), d=TrapTuple(tensors()))
    yield "hidden", Data(hidden=Hidden(tensors()))
    yield "metaclass", Data(strange=Strange.__call__ if False else type.__call__(Strange), stranger=type.__call__(Stranger), cls=Strange, items=tensors())
    yield "pickles itself", Data(a=Pickled(items=tensors()), items=tensors())
    yield "reduces itself", Reduced(items=tensors())
    yield "subclass", Data(items=[t.as_subclass(Sub) for t in tensors()], others=tensors())
    yield "sparse", Data(items=tensors() + [torch.eye(3).to_sparse()])
    yield "meta", Data(items=[torch.zeros(3, device="meta") for _ in range(N)])


def _sized(**fields):
    class Sized(Data):
        def __len__(self):
            return 9
    return Sized(**fields)


def main():
    torch.multiprocessing.reductions  # registers how tensors are pickled
    out = {name: found(dataset) for name, dataset in cases() if dataset is not None}
    many = 2000000
    for name, items in (("ints", list(range(many))), ("int pairs", [(n, n) for n in range(many)]),
                        ("many", tensors(100) * 20000), ("int dict", dict.fromkeys(range(many)))):
        out["bounded " + name] = found(Data(items=items), seconds=contents._SECONDS)
    del items
    views = Data(items=list(torch.zeros(N, 80)), others=tensors(), shared=torch.zeros(80).share_memory_(), empty=torch.zeros(0))
    out["sent"] = found(views, sends=True)
    changing = {n: n for n in range(100000)}
    stop = []

    def change():
        n = len(changing)
        while not stop:
            n += 1
            changing[n] = n
            changing.pop(n - 50000, None)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(50):
            contents.Contents(torch, Data(items=changing), False)
    finally:
        stop.append(1)
        thread.join()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
