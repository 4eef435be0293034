import os
import tempfile
import unittest

import hook
from _rsswarden import descriptors


class Descriptors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name + "/log"
        self.log = open(self.path, "w+b", buffering=0)
        self.addCleanup(self.log.close)
        self.log.write(b"before\n")

    def opened(self, flags):
        fd = os.open(self.path, flags)
        self.addCleanup(os.close, fd)
        return fd

    def test_only_what_is_open_for_reading_is_opened_again(self):
        read = self.opened(os.O_RDONLY)
        os.lseek(read, 3, os.SEEK_SET)
        self.opened(os.O_PATH)
        before = descriptors.positions()
        self.assertEqual(before.get(read), 3)
        self.assertNotIn(self.log.fileno(), before)

        def child():
            descriptors.reopen({read: 3})
            self.log.write(b"child\n")
            return os.read(read, 99) == b"ore\nchild\n"

        self.assertEqual(hook.in_child(child), 0)
        self.log.write(b"parent\n")
        self.assertEqual(os.lseek(read, 0, os.SEEK_CUR), 3)
        with open(self.path) as file:
            self.assertEqual(file.read().split(), ["before", "child", "parent"])

    def test_what_cannot_be_opened_again_stays(self):
        fd = self.opened(os.O_RDONLY)
        os.lseek(fd, 2, os.SEEK_SET)
        self.addCleanup(setattr, os, "open", os.open)

        def refused(*arguments):
            raise PermissionError

        os.open = refused
        descriptors.reopen({fd: 4, 1 << 20: 5})  # the second is no descriptor
        self.assertEqual(os.lseek(fd, 0, os.SEEK_CUR), 2)

    def test_pipes_to_others_are_let_go(self):
        before, own = os.pipe(), os.pipe()
        os.close(before[0])  # as of a program that was started with subprocess.PIPE, but for its end
        known = descriptors.write_ends()
        self.assertIn(before[1], known)
        self.assertNotIn(own[1], known)
        since = os.pipe()
        reader = os.dup(since[0])
        os.close(since[0])
        os.set_blocking(reader, False)
        self.addCleanup(lambda: [os.close(fd) for fd in (before[1], reader) + own])
        self.assertEqual(descriptors.write_ends(known.values()), {})  # this process can read it
        ends = {since[1]: descriptors._pipe(since[1])}

        def child():
            descriptors.let_go(ends)
            os.write(since[1], b"for none")
            os.close(reader)
            return descriptors._pipe(since[1]) is None and descriptors._pipe(before[1]) == known[before[1]]

        self.assertEqual(hook.in_child(child), 0)
        os.close(since[1])
        self.assertEqual(os.read(reader, 99), b"")
