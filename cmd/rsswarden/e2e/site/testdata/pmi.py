# Two ranks exchange a value through Slurm by the descriptor PMI_FD, as an MPI library does.
import os, socket

s = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rw", buffering=1)


def ask(text):
    s.write(text + "\n")
    s.flush()
    return dict(word.split("=", 1) for word in s.readline().split() if "=" in word)


rank = int(os.environ["PMI_RANK"])
assert ask("cmd=init pmi_version=1 pmi_subversion=1")["rc"] == "0"
kvs = ask("cmd=get_my_kvsname")["kvsname"]
assert ask(f"cmd=put kvsname={kvs} key=rank{rank} value=of{rank}")["rc"] == "0"
assert ask("cmd=barrier_in")["rc"] == "0"
got = ask(f"cmd=get kvsname={kvs} key=rank{1 - rank}")["value"]
ask("cmd=finalize")
with open(f"/proc/{os.getppid()}/comm") as f:
    print(f"by {f.read().strip()}\ngot {'of' if got == f'of{1 - rank}' else got}", flush=True)
