import io
import unittest
from unittest import mock

import hook
from _rsswarden import oom

EVENTS = "low 0\nhigh 0\nmax 7\noom 5\noom_kill 4\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"


class Counter(unittest.TestCase):
    def found(self, cgroup, files):
        """Returns where kills are counted, and how many, on a system with these files."""
        files = dict(files, **{"/proc/self/cgroup": cgroup})

        def opened(path, mode="r", buffering=-1):
            if path not in files:
                raise FileNotFoundError(path)
            return io.BytesIO(files[path].encode()) if mode == "rb" else io.StringIO(files[path])

        with mock.patch.object(oom, "open", opened, create=True):
            path = oom.counter()
            return path, oom.kills(path)

    def test_the_nearest_that_can_be_read(self):
        node = {"/proc/vmstat": "nr_free_pages 5\noom_kill 9\n"}
        v2, v1 = "/sys/fs/cgroup/a:b/memory.events", "/sys/fs/cgroup/memory/a/memory.oom_control"
        for cgroup, files, want in (
                ("0::/a:b\n", {v2: EVENTS}, (v2, 4)),
                ("4:cpu,memory:/a\n0::/\n", {v1: CONTROL}, (v1, 3)),
                ("0::/other\n", {v2: EVENTS}, ("/proc/vmstat", 9)),  # as a container sees it
                ("0::/a:b\n", {v2: "oom 1\n"}, ("/proc/vmstat", 9))):  # before Linux 4.13
            self.assertEqual(self.found(cgroup, dict(files, **node)), want)

    def test_a_kill_explains_one_death(self):
        a, b, c = object(), object(), object()
        with mock.patch.object(oom, "kills", lambda path: 5), mock.patch.object(oom, "_explains", {}):
            self.assertTrue(oom.explain("cgroup", 4, a))
            self.assertFalse(oom.explain("cgroup", 4, b))
            self.assertTrue(oom.explain("cgroup", 4, a), "asked again while it is asked")
            self.assertTrue(oom.explain("cgroup", 3, b), "a loader that is older knows of the kill before")
            self.assertFalse(oom.explain("cgroup", 5, c))
            self.assertFalse(oom.explain("cgroup", None, c))

    def test_none(self):
        self.assertEqual(self.found("", {}), ("/proc/vmstat", None))


if __name__ == "__main__":
    unittest.main()
