import os
import unittest

import hook
from _rsswarden import private, trim

with open(os.path.join(hook.HERE, "smaps.txt")) as file:
    SMAPS = file.read()


def entry(old="", new=""):
    assert old in SMAPS, old
    return SMAPS.replace(old, new) if old else SMAPS


def after(text):
    return text.replace("7f0000000000-7f0008000000", "7f0008000000-7f0010000000")


class Private(unittest.TestCase):
    def test_which_entries_of_smaps_may_be_dropped(self):
        bad = entry("Anonymous:             0", "Anonymous:             4")
        mapping, = trim.mappings(SMAPS.split("\n")[0].encode() + b"\n")
        self.assertEqual(mapping[1:], (0x7f0000000000, 128 << 20, b"r--p", 42, b"/data/a.arrow"))
        for name, smaps, clean, written in (
                ("clean", entry(), True, False),
                ("with read-ahead advice", entry("sd ", "rr sd "), True, False),
                ("between others", after(bad) + entry() + after(bad), True, False),
                ("anonymous", bad, False, True),
                ("anonymous, the next is clean", bad + after(entry()), False, True),
                ("dirty", entry("Private_Dirty:         0", "Private_Dirty:       120"), False, False),
                ("swapped", entry("Swap:                  0", "Swap:                  8"), False, False),
                ("was writable", entry("sd ", "ac sd "), False, False),
                ("locked", entry("sd ", "lo sd "), False, False),
                ("watched", entry("sd ", "sd um "), False, False),
                ("writable now", entry("rd mr", "rd wr mr"), False, False),
                ("another line", entry("r--p", "rw-p"), False, False),
                ("another file", entry("a.arrow", "a.arrow (deleted)"), False, False),
                ("a longer name", entry("a.arrow", "a.arrow.2"), False, False),
                ("no flags", entry("VmFlags: rd mr mw me sd \n"), False, False),
                ("no count of swap", entry("Swap:                  0 kB\n"), False, False),
                ("cut off", entry()[:300], False, False),
                ("gone", after(entry()), False, False),
                ("nothing", "", False, False)):
            with self.subTest(name):
                text = bytearray(b"\n" + smaps.encode())
                self.assertEqual((private.clean(mapping)(text) is not None, private.written(mapping, text)), (clean, written))
