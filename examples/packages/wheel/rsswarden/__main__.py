import os
import signal
import sys

from rsswarden import program

# Python ignores them, and what is executed would inherit that.
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
path = program()
os.execv(path, [path, *sys.argv[1:]])
