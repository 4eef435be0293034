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
        before, handed, own = os.pipe(), os.pipe(), os.pipe()
        os.close(before[0])
        known = descriptors.pipes()
        os.close(handed[0])  # another process may have it
        since, read = os.pipe(), os.pipe()
        reader = os.dup(since[0])
        self.addCleanup(lambda: [os.close(fd) for fd in (before[1], handed[1], reader, read[0]) + own])
        os.close(since[0])
        self.assertEqual(descriptors.since(known), {})  # this process has both ends of those
        os.close(read[1])
        self.assertEqual(list(descriptors.since(known)), [read[0]])

        def child():
            os.close(reader)
            os.write(since[1], b"for none")
            return os.read(read[0], 1) == b"" and all(map(descriptors._pipe, (before[1], handed[1])))

        found = {read[0]: (descriptors._pipe(read[0]), os.O_RDONLY), since[1]: (descriptors._pipe(since[1]), os.O_WRONLY)}
        self.assertEqual(hook.in_child(lambda: descriptors.let_go(found) or child()), 0)
        with descriptors.without(known):
            self.assertEqual(hook.in_child(lambda: descriptors._pipe(read[0]) is None), 0)
        self.assertEqual(hook.in_child(lambda: descriptors._pipe(read[0]) is not None), 0)
        os.close(since[1])
        self.assertEqual(os.read(reader, 99), b"")
