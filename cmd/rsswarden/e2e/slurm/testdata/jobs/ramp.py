"""Grows to 70 % of 300 MB within seconds and stays there."""
import time
keep = []
for i in range(20):
    keep.append(bytearray(10 << 20))
    time.sleep(0.1)
time.sleep(8)
