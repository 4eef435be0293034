# Holds so many MiB until it has been looked at a few times.
import sys, time

held = bytearray(int(sys.argv[1]) << 20)
time.sleep(2.5)
