# What private.py makes of a mapping: sys.argv[1] is its line in maps, [2] a text of smaps.
import sys

import hookonly
from _rsswarden import private, trim

m, = trim.mappings(sys.argv[1].encode() + b"\n")
assert m.start == 0x7f0000000000 and m.length == 128 << 20 and m.inode == 42 and m.path == b"/data/a.arrow"
text = bytearray(b"\n" + sys.argv[2].encode())
print(int(private.clean(m)(text) is not None), int(private.written(m, text)))
