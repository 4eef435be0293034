"""Whether what workers are given has changed, as far as that is seen at little cost.

No code of the program's runs and nothing that is looked at is kept. Seen are attributes of
objects, both ends of lists, and tensors by their version, a thousand values
in all. A change within an array or in the middle of a long list is not seen: a
replacement then has what the worker before it had.
"""
import collections
import itertools
import sys
import types

_MOST = 1000  # values that are looked at
_DEPTH = 6
_ENDS = 8  # elements of a container that are looked at, at each end
_LONG = 100  # characters of a text
_PLAIN = (int, float, complex, bool, str, bytes, type(None))
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


def of(values):
    """Returns what is seen of values, a dict by attribute of torch's iterator, by path."""
    found, tensor = {}, getattr(sys.modules.get("torch"), "Tensor", None)
    todo = collections.deque((name.lstrip("_"), value, 0) for name, value in values.items())
    while todo and len(found) < _MOST:
        path, value, depth = todo.popleft()
        kind, inside = type(value), ()
        if kind in _PLAIN:
            long = kind in (str, bytes) and len(value) > _LONG
            found[path] = (id(value), len(value)) if long else repr(value)
        elif kind in (list, tuple):
            found[path] = id(value), len(value)
            ends = value[:_ENDS] + value[max(len(value) - _ENDS, _ENDS):]
            places = itertools.chain(range(min(_ENDS, len(value))), range(max(len(value) - _ENDS, _ENDS), len(value)))
            inside = [("%s[%d]" % (path, n), one) for n, one in zip(places, ends)]
        elif kind is dict:
            found[path] = id(value), len(value)
            inside = [("%s[%s]" % (path, repr(key)[:_LONG] if type(key) in _PLAIN else n), one)
                      for n, (key, one) in enumerate(list(itertools.islice(value.items(), 2 * _ENDS)))]
        elif kind is tensor:
            found[path] = id(value), value._version
        else:
            found[path] = id(value), len(value) if kind in (set, frozenset) else None
            if not issubclass(kind, _CODE) and not kind.__module__.startswith(("multiprocessing", "threading")):
                inside = [("%s.%s" % (path, name), one) for name, one in _attributes(value)]
        if depth < _DEPTH:
            todo.extend((name, one, depth + 1) for name, one in inside)
    return found


def _attributes(value):
    try:
        return list(itertools.islice(object.__getattribute__(value, "__dict__").items(), _MOST))
    except (AttributeError, TypeError):
        return []


def first(before, now):
    """Returns the path of the first difference between two results of of, or None."""
    for path in itertools.chain(now, before):
        if path not in before or path not in now or before[path] != now[path]:
            return path
    return None
