"""Writes all that a process inherits to the file that its first argument names. Its own PID, and
that of its parent, are left out."""
import ctypes, os, resource, sys
out = []
say = lambda name, value: out.append("%s: %s" % (name, value))
for fd in sorted(int(f) for f in os.listdir("/proc/self/fd")):
    try: say("fd %d" % fd, os.readlink("/proc/self/fd/%d" % fd))
    except OSError: pass  # of the listing itself
for line in open("/proc/self/status"):
    name = line.split(":")[0]
    if name in ("Umask", "SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Groups", "CapInh", "CapBnd", "THP_enabled"):
        say(name, line.split(":")[1].strip())
say("limits", open("/proc/self/limits").read())
say("timer slack", open("/proc/self/timerslack_ns").read())
say("oom_score_adj", open("/proc/self/oom_score_adj").read())
say("dumpable", ctypes.CDLL(None).prctl(3))
say("nice", os.nice(0))
say("scheduler", os.sched_getscheduler(0))
say("affinity", sorted(os.sched_getaffinity(0)))
say("session", os.getsid(0))
say("group", os.getpgrp())
try: say("tty", os.open("/dev/tty", os.O_RDONLY) >= 0)
except OSError as e: say("tty", e.strerror)
say("cwd", os.getcwd())
for key in sorted(os.environ): say("env " + key, os.environ[key])
open(sys.argv[1], "w").write("\n".join(out) + "\n")
