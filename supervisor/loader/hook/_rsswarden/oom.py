"""Where the kernel counts the processes that its OOM killer takes, as near to this process as can be read."""
import typing

_explains: typing.Dict[str, typing.Dict[int, object]] = {}  # by counter, then by the number of a kill: whose death it was


def counter() -> str:
    """Returns the file that counts those of this process's cgroup, or of the node where that cannot be read."""
    try:
        with open("/proc/self/cgroup") as file:
            for line in file.read().splitlines():
                _, controllers, path = line.split(":", 2)
                name = ""
                if not controllers:
                    name = "/sys/fs/cgroup%s/memory.events" % path
                elif "memory" in controllers.split(","):
                    name = "/sys/fs/cgroup/memory%s/memory.oom_control" % path
                if name and kills(name) is not None:
                    return name
    except (OSError, ValueError):
        pass
    return "/proc/vmstat"


def kills(path: str) -> typing.Optional[int]:
    """Returns how many a file of counter counts since its beginning (Linux 4.13), or None."""
    try:
        with open(path, "rb", 0) as file:
            text = b"\n" + file.read(1 << 16)
        at = text.index(b"\noom_kill ") + 10
        return int(text[at:text.index(b"\n", at)])
    except (OSError, ValueError):
        return None


def explain(path: str, since: typing.Optional[int], process: object) -> bool:
    """Says whether the kernel counts a kill after the first since that explains no death in this program yet; it explains this one then.

    Any loader may see a death first, also in a signal handler that runs while another asks.
    """
    now = kills(path)
    if since is None or now is None:
        return False
    explained = _explains.setdefault(path, {})
    return any(explained.setdefault(number, process) is process for number in range(since + 1, now + 1))
