import mmap
import os
import tempfile
import unittest

import hook
from _rsswarden import trim

MAPS = b"""\
7f0000000000-7f0000800000 r--s 00000000 fe:00 7                          /data/a file.mdb
7f0001000000-7f0001800000 rw-s 00000000 fe:00 7                          /data/written
7f0002000000-7f0002800000 r--s 00000000 fe:00 0                          /data/no inode
7f0003000000-7f0003100000 r--s 00000000 fe:00 7                          /data/small
7f0004000000-7f0004800000 r--s 00000000 fe:00 7                          /dev/shm/torch_1
7f0005000000-7f0005800000 r--p 00000000 00:00 0
7f0006000000-7f0006800000 r-xp 00000000 fe:00 9                          /usr/lib/libtorch.so
"""


class Trim(unittest.TestCase):
    def test_which_mappings_are_looked_at(self):
        self.assertEqual([(m.path, m.perms, m.length) for m in trim.mappings(MAPS)],
                         [(b"/data/a file.mdb", b"r--s", 8 << 20), (b"/usr/lib/libtorch.so", b"r-xp", 8 << 20)])

    def test_pages_go_and_come_back_as_they_were(self):
        with tempfile.TemporaryFile() as file:
            file.write(os.urandom(1 << 20) * 16)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
            want = mapped[:]
            before, after = trim.trim()
            self.assertGreater(before - after, 15 << 20)
            self.assertEqual(mapped[:], want)
            mapped.close()

    def test_a_budget_that_nothing_helps_is_tried_less_and_less(self):
        side, has, trims = hook.Side(budget=1 << 20), [100 << 20], []
        for name, value in (("shared", lambda: has[0]), ("trim", lambda wrong: trims.append(has[0] >> 20) or (has[0], has[0]))):
            self.addCleanup(setattr, trim, name, getattr(trim, name))
            setattr(trim, name, value)
        trimmer = trim.Trimmer(side)
        for _ in range(64):
            trimmer.budget()
            has[0] += 1 << 20
        self.assertEqual(trims, [100, 117, 134, 151])
        self.assertEqual(side.said, [])

    def test_a_request_is_met_once(self):
        side, calls = hook.Side(), []
        self.addCleanup(setattr, trim, "trim", trim.trim)
        trim.trim = lambda wrong: calls.append(wrong is not None) or (9, 4)
        trimmer = trim.Trimmer(side)
        for version, trims, private in ((1, (5,), False), (1, (6,), False), (2, (5, 6), True)):
            side.version, side.trims, side.private = version, trims, private
            trimmer.requests()
        self.assertEqual(([s["id"] for s in side.said], calls), ([5, 6], [False, True]))

    def test_a_batch_is_watched_between_its_records(self):
        looks = []
        watched = trim.Watched.over([4, 5, 6], lambda: looks.append(1))
        self.assertEqual(([(n, len(looks)) for n in watched], watched, len(watched)), ([(4, 0), (5, 1), (6, 2)], [4, 5, 6], 3))
