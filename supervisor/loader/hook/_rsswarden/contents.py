"""What tensors a data set holds, found without a line of the program's own code.

The walk opens instances, lists, tuples, dicts and sets, those that derive from
them too, by the methods of the built-in types: no property, no __getattr__ or
__iter__ of the program's runs, and no length is asked for. It goes three
containers deep, counted again from each torch Dataset (Subset, ConcatDataset), and
ends after 50 ms of this thread's time, and 5 us more for each tensor that was
found, for which torch will take 40 or more. Objects that say themselves how they are
pickled are not opened. Where something was left out, more says so.

Everything is done for many elements at once: with one call of Python for each,
no more than the first tenth of a list that is too long would be met in that time.
"""
import collections
import copyreg
import itertools
import operator
import sys
import time
import types

from _rsswarden import guard

_SECONDS = 0.05
_EACH, _EACH_MOST = 5e-6, 0.25  # for tensors beside that, in seconds
_DEPTH = 3  # containers below a data set
_LEVELS = 16  # of any kind: data sets may hold one another
_CHUNK = 1024  # elements between two looks at the clock
_MOST = 1 << 20  # elements of a dict or set: a copy of those is taken

_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: not one of the interpreter's own

# How a class is looked at without its metaclass having a say.
_mro = vars(type)["__mro__"].__get__
_vars = vars(type)["__dict__"].__get__
_flags = vars(type)["__flags__"].__get__

_PLAIN = (object, list, tuple, dict, set, frozenset, collections.OrderedDict, collections.defaultdict)
_LIBRARY = getattr(sys, "stdlib_module_names", ())  # from 3.10 on
_OWN = ("__reduce_ex__", "__reduce__", "__getstate__")

_LEAF, _TENSOR, _UNKNOWN = "leaf", "tensor", "unknown"

_identity = operator.attrgetter("_cdata")


class _Late(Exception):
    pass


def _has(classes, kind):
    """Says whether kind is among classes; `in` would ask their metaclasses, which may be the program's."""
    return any(base is kind for base in classes)


class _Plan:
    """How an instance of one class is opened."""

    def __init__(self, elements, attributes, members, dataset):
        self.elements = elements  # returns what a container holds, or None
        self.attributes = attributes  # __dict__, or None
        self.members = members  # __slots__
        self.dataset = dataset


class Contents:
    """The tensors of main memory in dataset, by what torch.multiprocessing will do with them."""

    def __init__(self, torch, dataset, sends, seconds=_SECONDS):
        self.storages = 0  # not shared yet: each will be moved to shared memory
        self.bytes = 0
        self.empty = 0  # of those without a byte
        self.sent = 0  # descriptors that go to each worker, for what is shared already too
        self.more = False
        self.visited = 0  # elements that were looked at
        self._torch = torch
        base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
        self._storage = vars(base).get("untyped_storage") or vars(base)["_storage"]
        self._plain = _PLAIN + (torch.nn.Module,)  # whose __getstate__ leaves out compiled code
        self._tensor_types = (torch.Tensor, torch.nn.Parameter)
        self._dataset_type = getattr(sys.modules.get("torch.utils.data.dataset"), "Dataset", None)
        pickler = getattr(sys.modules.get("multiprocessing.reduction"), "ForkingPickler", None)
        reducers = list(getattr(pickler, "_extra_reducers", ())) + list(copyreg.dispatch_table)
        self._reducers = set(map(id, reducers))
        self._plans = {}  # by the id of a class: its metaclass may have no hash
        self._opened = {}  # containers by id, and how deep they were met
        self._met = set()  # storages
        self._sends = sends  # whether to count what is sent
        self._told = set()  # tensors whose descriptors are counted, by id
        self._kept = None  # whether a storage has one Python object for life, as from torch 2.1 on
        self._end = time.thread_time() + seconds
        self._latest = self._end + _EACH_MOST
        try:
            self._look([dataset], 0, 0)
        except _Late:
            self.more = True

    def _look(self, elements, depth, level):
        """Counts the tensors among elements and opens what may hold more."""
        if time.thread_time() > self._end:
            raise _Late
        self.visited += len(elements)
        kinds = {id(kind): kind for kind in map(type, elements)}
        for key, kind in kinds.items():
            plan, _ = self._plans.get(key, (None, None))
            if plan is None:
                plan = self._plan(kind)
                self._plans[key] = plan, kind  # while it is kept no other class has its id
            if plan is _LEAF:
                continue
            if plan is _UNKNOWN or level > _LEVELS:
                self.more = True
                continue
            some = elements if len(kinds) == 1 else [e for e in elements if type(e) is kind]
            if plan is _TENSOR:
                self._count(some)
            elif plan.dataset:
                self._open(plan, some, 0, level)
            elif depth > _DEPTH:
                self.more = True
            else:
                self._open(plan, some, depth, level)

    def _open(self, plan, containers, depth, level):
        """Looks at what containers of one class hold."""
        new, opened = [], self._opened
        for container in containers:
            key = id(container)
            if opened.get(key, _LEVELS) > depth:
                opened[key] = depth
                new.append(container)
        for inside in (plan.elements, self._attributes(plan)):
            if inside is None:
                continue
            rest = itertools.chain.from_iterable(map(inside, new))
            while True:
                chunk = list(itertools.islice(rest, _CHUNK))
                if not chunk:
                    break
                self._look(chunk, depth + 1, level + 1)

    def _attributes(self, plan):
        if plan.attributes is None and not plan.members:
            return None

        def attributes(instance):
            values = [] if plan.attributes is None else self._values(plan.attributes(instance))
            for member in plan.members:
                try:
                    values.append(member(instance))
                except AttributeError:
                    pass
            return values

        return attributes

    # In one step: another thread of the program may change the container meanwhile.

    def _values(self, container):
        if dict.__len__(container) > _MOST:
            self.more = True
        return list(itertools.islice(dict.values(container), _MOST))

    def _members(self, container):
        kind = set if _has(_mro(type(container)), set) else frozenset
        if kind.__len__(container) > _MOST:
            self.more = True
        return list(itertools.islice(kind.__iter__(container), _MOST))

    def _plan(self, kind):
        """Says how instances of kind are opened, if they are."""
        if _has(self._tensor_types, kind):
            return _TENSOR
        mro = _mro(kind)
        if _has(mro, type) or id(kind) in self._reducers:
            return _LEAF
        if _has(mro, self._torch.Tensor):
            return _UNKNOWN  # its methods may be the program's
        for base in mro:
            names = None if _has(self._plain, base) else _vars(base)
            for name in _OWN:
                if names is not None and name in names:
                    # What C or the standard library pickles (numpy, datetime, random) holds no list of tensors.
                    known = isinstance(names[name], types.MethodDescriptorType) or names.get("__module__") in _LIBRARY
                    return _LEAF if known else _UNKNOWN
        elements = None
        for base, inside in ((list, list.__iter__), (tuple, tuple.__iter__), (dict, self._values),
                             (set, self._members), (frozenset, self._members)):
            if _has(mro, base):
                elements = inside
        if not _flags(kind) & _HEAP:
            return _LEAF if elements is None else _Plan(elements, None, (), False)
        attributes, members = None, []
        for base in mro:
            for name, value in list(_vars(base).items()):
                if name == "__dict__":
                    if not isinstance(value, types.GetSetDescriptorType):
                        return _UNKNOWN
                    attributes = attributes or value.__get__
                elif isinstance(value, types.MemberDescriptorType) and _flags(base) & _HEAP:
                    members.append(value.__get__)
        return _Plan(elements, attributes, members, _has(mro, self._dataset_type))

    def _count(self, tensors):
        """Counts the storages of tensors that were not met before."""
        try:
            if tensors[0].device.type != "cpu":
                tensors = [t for t in tensors if t.device.type == "cpu"]
            storages = list(map(self._storage, tensors))
        except (NotImplementedError, RuntimeError) as error:
            if not guard.ours(error):
                raise
            # A sparse one has no storage, and is pickled as several tensors.
            self.more = True
            if len(tensors) > 1:
                for tensor in tensors:
                    self._count([tensor])
            return
        if not storages:
            return
        kind = type(storages[0])
        if self._kept is None:
            self._kept = self._storage(tensors[0]) is storages[0]
        keys = list(map(_identity, storages))
        new = set(keys) - self._met
        self._met |= new
        if len(new) == len(keys):
            new = storages
        else:
            by_key = dict(zip(keys, storages))
            new = [by_key[key] for key in new]
        owned = [s for s, shared in zip(new, map(kind.is_shared, new)) if not shared]
        sizes = list(map(kind.nbytes, owned))
        self._end = min(self._end + len(owned) * _EACH, self._latest)
        self.storages += len(owned)
        self.bytes += sum(sizes)
        self.empty += sizes.count(0)
        if self._sends:
            self._send(kind, tensors, storages, new)

    def _send(self, kind, tensors, storages, new):
        if not self._kept:
            # Pickle does not know a storage again that is another object at each look.
            new = [s for t, s in zip(tensors, storages) if id(t) not in self._told]
            self._told.update(map(id, tensors))
        self.sent += sum(map(bool, map(kind.nbytes, new)))
