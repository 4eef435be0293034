import json, os
with open("/proc/self/stat") as f: start = int(f.read().rpartition(")")[2].split()[19])
with open("/proc/sys/kernel/random/boot_id") as f: boot_id = f.read().strip()
def put(file, **said):
    path = os.environ["RSSWARDEN_DIR"] + "/" + file
    with open(path + ".new", "w") as f: f.write(json.dumps(dict(said, pid=os.getpid())) + "\n")
    os.rename(path + ".new", path)
key, me = "a" * 32, ".%d.%d" % (os.getpid(), start)
put("untried." + key, key=key, torch="9.0", executable="/bin/false", hook="/", path=[])
put("log" + me, t=0, what="iter", n=1, kind="map", num_workers=0, workers=[], can_recycle=True, trial="waiting", key=key)
put("hello" + me, v=1, start=start, ppid=os.getppid(), boot_id=boot_id, pid_ns=os.readlink("/proc/self/ns/pid"),
    torch="9.0", python="3.8.0", can_recycle=True, why="")
