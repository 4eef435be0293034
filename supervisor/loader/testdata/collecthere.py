# Requests to collect, without torch; sys.argv[1] is the case.
import ctypes, gc, os, sys

import hookonly
from _rsswarden import collect

class Side:
    pid, version, collects = os.getpid(), 0, ()
    def say(self, what, **fields): print(what, fields["id"], fields["why"], fields["after"] <= fields["before"] + (1 << 20))

def ask(side, collector, *ids):
    side.collects = ids; side.version += 1; collector.requests(); sys.stdout.flush()

def once():
    side = Side(); c = collect.Collector(side, False)
    ask(side, c, 3); ask(side, c, 3); ask(side, c, 3, 4, 5); ask(side, c)

def musl():
    class Musl:
        def __init__(self, name): pass
    ctypes.CDLL = Musl
    side = Side(); ask(side, collect.Collector(side, False), 1)

def shared():
    kept = [[i] for i in range(400000)]
    def private():
        with open("/proc/self/smaps_rollup") as file:
            return [int(line.split()[1]) >> 10 for line in file if line.startswith("Private_Dirty")][0]
    if not os.fork():
        side = Side(); before = private()
        ask(side, collect.Collector(side, True), 1)
        print(private() - before < 8); sys.stdout.flush()
        gc.collect()
        print(private() - before > 15); sys.stdout.flush()
        os._exit(0)
    os.wait()

globals()[sys.argv[1]]()
