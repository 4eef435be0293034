# hello: 0
import os, signal, sys, torch.utils.data
class Theirs(Exception): pass
def handler(*a): raise Theirs
signal.signal(signal.SIGUSR1, handler)
lstat = os.lstat
def slow(path):
    os.kill(os.getpid(), signal.SIGUSR1)
    return lstat(path)
os.lstat = slow
try:
    import torch.utils.data.dataloader
    os.lstat("/")
except Theirs: print("theirs")
