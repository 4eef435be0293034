import sys
keep = b""
for line in sys.stdin:
    del keep
    keep = bytearray(int(line) << 20)
    print(int(line), flush=True)
sys.exit(7)
