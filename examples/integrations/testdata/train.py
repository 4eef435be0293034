"""Grows to 400 MB in a second, and writes a model: train.py SEED MODEL."""
import sys
import time

seed, model = sys.argv[1:]
held = []
for step in range(40):
    held.append(b"\x55" * (10 << 20))
    time.sleep(0.025)
with open(model, "w") as f:
    f.write("model of %s\n" % seed)
