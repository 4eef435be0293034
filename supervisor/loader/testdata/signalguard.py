# Handlers of signals that raise while the hook is at work.
import functools, os, signal, sys, torch
patch = sys.modules["_rsswarden.patch"]
class Theirs(Exception): pass
def handler(number, frame): raise Theirs
class Called:
    def method(self, number, frame): raise Theirs
    def __call__(self, number, frame): raise Theirs
def work():
    os.kill(os.getpid(), signal.SIGUSR1)
    while True: pass
def once(number, frame):
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    raise Theirs
def anyhow(*given): once(*given)
for h in (handler, functools.partial(handler), Called().method, Called(), once, anyhow):
    signal.signal(signal.SIGUSR1, h)
    try: patch._guarded(work)
    except Theirs: print("theirs", patch._off)
def ours(): raise ValueError
patch._guarded(ours)
print("ours", patch._off)
