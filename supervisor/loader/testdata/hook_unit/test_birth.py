import os
import types
import unittest

import hook
from _rsswarden import birth


class Process:
    """A worker that something else has reaped."""

    exitcode = None

    def __init__(self, pid, method, says):
        self.pid, self._popen, self.says = pid, types.SimpleNamespace(method=method), says

    def is_alive(self):
        return self.exitcode is None

    def join(self, timeout):
        self.exitcode = self.says


class Ended(unittest.TestCase):
    def test_the_status_of_a_worker_that_was_reaped(self):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        for method, says, reported, exit, why in (
                ("forkserver", 7, True, 7, ""),
                ("forkserver", None, True, -1, "exit status unknown: its fork server does not report it"),
                ("fork", None, False, -1, "exit status unknown: the program itself reaped it")):
            with self.subTest((method, says)):
                process = Process(child, method, says)
                self.assertTrue(birth.ended(process))
                self.assertEqual(birth.unreported(process), reported)
                self.assertEqual(birth.end(process, 0), 0)
                self.assertEqual(birth.outcome(process, 0), {"exit": exit, "why": why})
