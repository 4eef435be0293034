import unittest

import hook
from _rsswarden import changes


class Transform:
    def __init__(self):
        self.p = 0.5


class Data:
    def __init__(self):
        self.epoch, self.paths, self.options = 0, ["%d.png" % n for n in range(1000)], {"size": (3, 4), 7: None}
        self.transform, self.nan, self.text, self.me = Transform(), float("nan"), "x" * 1000, self

    def __eq__(self, other):
        raise hook.Fault

    __getattr__ = __hash__ = __len__ = __bool__ = __repr__ = __eq__


class Changes(unittest.TestCase):
    def test_what_is_seen(self):
        for path, change in (
                (None, lambda d: None),
                (None, lambda d: setattr(d, "epoch", 0)),
                (None, lambda d: d.paths.__setitem__(500, "")),  # the middle of a long list
                ("dataset.epoch", lambda d: setattr(d, "epoch", 1)),
                ("dataset.new", lambda d: setattr(d, "new", 1)),
                ("dataset.epoch", lambda d: delattr(d, "epoch")),
                ("dataset.paths[999]", lambda d: d.paths.__setitem__(-1, "")),
                ("dataset.paths", lambda d: d.paths.pop()),
                ("dataset.options['size']", lambda d: d.options.__setitem__("size", (5, 6))),
                ("dataset.options[7]", lambda d: d.options.__setitem__(7, 0)),
                ("dataset.transform.p", lambda d: setattr(d.transform, "p", 1)),
                ("dataset.text", lambda d: setattr(d, "text", "y" * 1001)),
                ("n", lambda d: values.__setitem__("_n", 3))):
            data = Data()
            values = {"_dataset": data, "_n": 2}
            before = changes.of(values)
            change(data)
            with self.subTest(path):
                self.assertEqual(changes.first(before, changes.of(values)), path)

    def test_only_so_much_is_looked_at(self):
        self.assertLess(len(changes.of({"_dataset": [[[[n] * 10] * 10] * 10 for n in range(100)]})), 3 * changes._MOST)
