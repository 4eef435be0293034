import os, subprocess, sys
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.read(0, 1)
        os._exit(0)
helper = """
import os, sys
if os.geteuid() == 0: os.setgroups([]); os.setresgid(0, 0, 0); os.setresuid(0, 0, 0)
held = bytearray(60 << 20)
sys.stdin.read()
"""
p = subprocess.Popen([sys.argv[1], "-c", helper])
sys.exit(7 if p.wait() == 0 else 1)
