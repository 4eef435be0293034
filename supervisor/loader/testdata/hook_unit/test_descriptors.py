import os
import tempfile
import unittest

import hook
from _rsswarden import offsets


class Offsets(unittest.TestCase):
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
        before = offsets.positions()
        self.assertEqual(before.get(read), 3)
        self.assertNotIn(self.log.fileno(), before)

        def child():
            offsets.reopen({read: 3})
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
        offsets.reopen({fd: 4, 1 << 20: 5})  # the second is no descriptor
        self.assertEqual(os.lseek(fd, 0, os.SEEK_CUR), 2)
