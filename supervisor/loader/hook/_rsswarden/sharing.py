"""What it will take to send a data set to workers that are not forked.

torch.multiprocessing moves each tensor that is pickled to shared memory of its
own: a mapping each, and with the strategy file_descriptor an open file each, in
the process that pickles and in every worker. Many small tensors end that with
ENOMEM (vm.max_map_count), EMFILE (RLIMIT_NOFILE), or, as they go to a fork
server, at the 253 descriptors that Linux passes in one message. It takes less
than a second to get there: what is known is said before.

Measured on torch 1.13 and 2.6: one mapping and one descriptor a storage, however
many workers follow, which are given the same ones; those that are shared already
take none, but are sent again. Empty storages take a mapping with file_system.
"""
import multiprocessing
import os

from _rsswarden import channel, contents

# Below this many, what multiprocessing takes for itself is as much.
_FEW = 64

# What a loader takes beside its tensors: queues, their threads, pipes. Measured.
_MAPS, _MAPS_EACH = 12, 10
_FDS, _FDS_EACH = 4, 4
_SENT, _SENT_MOST = 8, 253  # SCM_MAX_FD of the kernel; four go to the fork server itself, four are of two queues

# Left free by a raise: batches come through descriptors too.
_SPARE = 256
_NOFILE_MOST = 65536


def method(context):
    """Says how context starts processes, without settling that for a program that has not yet."""
    name = context.get_start_method(allow_none=True)
    return multiprocessing.get_all_start_methods()[0] if name is None else name  # the first is the default


def need(loader, torch):
    """Returns what the workers of loader will take, or None where it is nothing to speak of."""
    start = method(loader.multiprocessing_context or torch.multiprocessing)
    if start == "fork":
        return None
    strategy = torch.multiprocessing.get_sharing_strategy()
    by_descriptor = strategy == "file_descriptor"
    sends = by_descriptor and start == "forkserver"
    found = contents.Contents(torch.module, vars(loader).get("dataset"), sends)
    new = found.storages - found.empty if by_descriptor else found.storages
    if max(new, found.sent) < _FEW:
        return None
    workers = loader.num_workers
    soft, hard = descriptor_limits()
    return {
        "start_method": start, "strategy": strategy, "workers": workers,
        "tensors": new, "tensor_bytes": found.bytes, "more": found.more,
        "maps_needed": _lines("/proc/self/maps") + new + _MAPS + _MAPS_EACH * workers,
        "maps_limit": _number("/proc/sys/vm/max_map_count"),
        "fds_needed": len(os.listdir("/proc/self/fd")) + (new if by_descriptor else 0) + _FDS + _FDS_EACH * workers,
        "fds_limit": soft, "fds_hard_limit": hard,
        "fds_sent": found.sent + _SENT if sends else 0, "fds_sent_limit": _SENT_MOST if sends else 0,
    }


def near(needed):
    """Says whether a limit may end it.

    Half of one is near: the count may have been cut short, and the next loader of
    the program, for its validation, often takes as much again. What is sent in one
    message is sent at each start, and nothing adds to it.
    """
    if needed["maps_needed"] * 2 >= needed["maps_limit"] > 0:
        return True
    if needed["fds_sent"] > needed["fds_sent_limit"] or needed["more"] and needed["fds_sent"] * 2 > needed["fds_sent_limit"]:
        return True
    if needed["strategy"] != "file_descriptor":
        return False
    if "fds_limit_before" in needed:
        return needed["fds_needed"] > needed["fds_limit"]
    return needed["fds_needed"] * 2 >= needed["fds_limit"] > 0


def raise_limit(needed, most):
    """Raises the soft RLIMIT_NOFILE of this process to what is needed, to most at the most; returns whether it did.

    Workers that are spawned inherit it, and need it. A fork server has the one it
    was started with, and takes fewer descriptors at once than any soft limit allows.
    """
    if not most or needed["start_method"] != "spawn" or needed["strategy"] != "file_descriptor":
        return False
    soft, wanted = needed["fds_limit"], needed["fds_needed"] + _SPARE
    if needed["more"] and wanted * 2 > soft:
        wanted = _NOFILE_MOST  # what was seen is only a part
    wanted = min(wanted, most, needed["fds_hard_limit"], _NOFILE_MOST)
    if wanted <= soft:
        return False
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    except (OSError, ValueError):
        return False
    needed.update(fds_limit_before=soft, fds_limit=wanted)
    return True


def descriptor_limits():
    """Returns the soft and hard RLIMIT_NOFILE, 0 for what could not be read."""
    try:
        with open("/proc/self/limits", "rb") as file:
            for line in file:
                if line.startswith(b"Max open files"):
                    return tuple(1 << 30 if word == b"unlimited" else int(word) for word in line[14:].split()[:2])
    except (OSError, ValueError):
        pass
    return 0, 0


def _number(path):
    try:
        with open(path, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _lines(path):
    with open(path, "rb", 0) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 16), b""))


def warn(loader, torch, here):
    """Says what lies ahead of the workers of loader, before anything is pickled; here returns this process."""
    needed = need(loader, torch)
    if needed is None:
        return
    if raise_limit(needed, channel.setting("nofile")):
        here().side.say("raised", sharing=needed)
    if near(needed):
        here().side.say("pickling", sharing=needed)
