"""Makes the modules of the hook importable without torch, and has what stands in for their surroundings."""
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(os.path.dirname(os.path.dirname(HERE)), "hook", "_rsswarden")
MODULES = sorted(name[:-3] for name in os.listdir(FOLDER) if name.endswith(".py") and name != "__init__.py")

package = types.ModuleType("_rsswarden")
package.__path__ = [FOLDER]
sys.modules["_rsswarden"] = package


class Fault(Exception):
    """Is raised by what must not reach the program."""


def fails(*arguments, **keywords):
    raise Fault


class Side:
    """One end of the channel, which keeps what is said."""

    def __init__(self, **fields):
        self.pid, self.version, self.budget, self.private = os.getpid(), 0, 0, False
        self.trims = self.collects = self.recycles = ()
        self.said = []
        self.__dict__.update(fields)

    def say(self, what, **fields):
        self.said.append(dict(fields, what=what))

    def look(self):
        pass


def in_child(function):
    """Runs function in a forked process; returns its exit status, 0 where it returns true."""
    pid = os.fork()
    if not pid:
        status = 9
        try:
            status = 0 if function() else 1
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]
