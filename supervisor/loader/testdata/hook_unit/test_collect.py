import ctypes
import gc
import unittest

import hook
from _rsswarden import collect


class Collect(unittest.TestCase):
    def setUp(self):
        self.side = hook.Side()

    def ask(self, collector, *ids):
        self.side.collects = ids
        self.side.version += 1
        collector.requests()
        said, self.side.said = self.side.said, []
        for s in said:
            self.assertEqual(s["freed"], max(s["before"] - s["after"], 0))
        return [(s["what"], s["id"], s["why"]) for s in said]

    def test_each_request_is_met_once(self):
        c = collect.Collector(self.side, False)
        self.assertEqual(self.ask(c, 3), [("collected", 3, "")])
        self.assertEqual(self.ask(c, 3), [])
        self.assertEqual(self.ask(c, 3, 4, 5), [("collected", 4, ""), ("collected", 5, "")])
        self.assertEqual(self.ask(c), [])

    def test_a_c_library_without_malloc_trim(self):
        self.addCleanup(setattr, ctypes, "CDLL", ctypes.CDLL)
        ctypes.CDLL = lambda name: object()
        self.addCleanup(setattr, collect, "_trim", collect._trim)
        collect._trim = None
        self.assertEqual(self.ask(collect.Collector(self.side, False), 1), [("collected", 1, "no malloc_trim in this C library")])

    def test_a_worker_that_shares_most_leaves_the_shared_part_alone(self):
        kept = [[i] for i in range(400000)]

        def private():
            with open("/proc/self/smaps_rollup") as file:
                return [int(line.split()[1]) >> 10 for line in file if line.startswith("Private_Dirty")][0]

        def child():
            before = private()
            why = self.ask(collect.Collector(self.side, True), 1)[0][2]
            ours = private() - before
            gc.collect()
            return why.startswith("no gc.collect: most of its memory is shared") and ours < 8 and private() - before > 15

        self.assertEqual(hook.in_child(child), 0)
        del kept

    def test_what_is_read_of_this_process(self):
        total, shared = collect.resident()
        self.assertTrue(total > shared > 0 and 0 < collect.anonymous() < 4 * total)
