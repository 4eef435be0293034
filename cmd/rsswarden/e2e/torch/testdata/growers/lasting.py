"""How long the programs of this directory go on."""
import os
import time


def lasting(seconds):
    """Returns what says that it is time to end: after so many seconds, or, where ENOUGH names
    a file, once that is there, at the latest after four times as many: a busy node is slow."""
    enough = os.environ.get("ENOUGH")
    end = time.time() + seconds * (4 if enough else 1)
    return lambda: time.time() > end or bool(enough) and os.path.exists(enough)
