import functools
import os
import signal
import unittest

import hook
from _rsswarden import guard, patch


class Theirs(Exception):
    pass


def handler(number, frame):
    raise Theirs


class Called:
    def method(self, number, frame):
        raise Theirs

    def __call__(self, number, frame):
        raise Theirs


def once(number, frame):
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    raise Theirs


def anyhow(*given):
    once(*given)


def interrupted():
    os.kill(os.getpid(), signal.SIGUSR1)
    while True:
        pass


class Guard(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, patch, "_off", False)
        self.addCleanup(setattr, patch, "_here", patch._here)
        side = self.side = hook.Side()
        patch._here = lambda: type("Process", (), {"side": side})

    def test_what_a_handler_of_the_program_raises_is_theirs(self):
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
        for given in (handler, functools.partial(handler), Called().method, Called(), once, anyhow):
            with self.subTest(given):
                signal.signal(signal.SIGUSR1, given)
                with self.assertRaises(Theirs):
                    patch._guarded(interrupted)
                self.assertFalse(patch._off)

    def test_what_we_raise_is_ours_and_said_once(self):
        self.assertIsNone(patch._guarded(hook.fails))
        self.assertIsNone(patch._guarded(hook.fails))
        self.assertTrue(patch._off)
        self.assertEqual([(s["what"], s["why"].split(" at ")[0]) for s in self.side.said], [("off", "Fault: ")])

    def test_that_it_cannot_be_said_changes_nothing(self):
        patch._here = hook.fails
        self.assertIsNone(patch._guarded(hook.fails))
        self.assertTrue(patch._off)

    def test_what_ends_the_program_passes(self):
        def leave():
            raise SystemExit(3)

        with self.assertRaises(SystemExit):
            patch._guarded(leave)
        self.assertFalse(patch._off)

    def test_describe_names_our_last_line(self):
        try:
            guard._interrupts(None)
        except AttributeError as error:
            self.assertRegex(guard.describe(error), r"^AttributeError: .* at _rsswarden\.guard:\d+$")
        self.assertEqual(guard.describe(ValueError("x" * 999)), "ValueError: " + "x" * 200)
