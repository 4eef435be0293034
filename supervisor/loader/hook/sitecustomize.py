"""What every Python of a job under rsswarden runs at its start.

It parses on every Python from 2.7 on and does nothing but to step aside below
3.8, and on any other than CPython. It leaves sys.path and sys.modules as they would be without it, puts one
finder in front that waits for torch.utils.data.dataloader, torchdata's stateful one and the modules of pools
of processes, and runs the sitecustomize that it precedes. It never imports torch, and a failure of
its own is silent: the program runs as it would without it.
"""
import os
import sys


def _arm(here):
    """Has the hook in here patch the modules of the loaders once they are imported."""
    targets = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader",
               "multiprocessing.pool", "multiprocess.pool", "concurrent.futures.process",
               "loky.process_executor", "joblib.externals.loky.process_executor")
    package = "_rsswarden"

    def ours(name):
        """Returns the spec of the hook, or of a module in it. Where its compiled file is broken the text is compiled."""
        from importlib.machinery import SourceFileLoader
        from importlib.util import spec_from_file_location

        class Loader(SourceFileLoader):
            def get_code(self, fullname):
                try:
                    return SourceFileLoader.get_code(self, fullname)
                except (EOFError, TypeError, ValueError):
                    return self.source_to_code(self.get_data(self.path), self.path)

        folder = os.path.join(here, package)
        file = os.path.join(folder, (name[len(package) + 1:] or "__init__") + ".py")
        return spec_from_file_location(
            name, file, loader=Loader(name, file), submodule_search_locations=[folder] if name == package else None)

    def begin(module):
        """Loads the hook, which is not on sys.path, and gives it the module."""
        if package not in sys.modules:
            from importlib.util import module_from_spec

            spec = ours(package)
            hook = module_from_spec(spec)
            sys.modules[package] = hook
            try:
                spec.loader.exec_module(hook)
            except BaseException:
                del sys.modules[package]
                raise
        sys.modules[package].begin(module)

    def theirs(error):
        """Says whether a signal handler of the program raised error while the hook was at work."""
        try:
            from _rsswarden import guard
            return not guard.ours(error)
        except Exception:
            return False

    def find(name, path, target_module):
        """Returns what the other finders find, with begin after its execution."""
        for finder in list(sys.meta_path):
            if finder is Finder:
                continue
            if not hasattr(finder, "find_spec"):
                if finder.find_module(name, path) is not None:
                    return None  # from a time before specs: it is let be
                continue
            spec = finder.find_spec(name, path, target_module)
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module):
            try:
                if spec.loader is loader:
                    del loader.exec_module
                else:
                    spec.loader = module.__loader__ = loader
            except Exception:
                pass
            execute(module)
            try:
                begin(module)
            except Exception as error:
                if theirs(error):
                    raise

        try:
            if isinstance(loader, type):
                raise TypeError  # one for all modules
            loader.exec_module = exec_module
        except (AttributeError, TypeError):
            spec.loader = StandIn(loader, exec_module)
        return spec

    class StandIn(object):
        """Is a loader that cannot have a method of its own, until it executes the module."""

        def __init__(self, loader, exec_module):
            self._loader, self.exec_module = loader, exec_module

        def __getattr__(self, name):
            return getattr(self._loader, name)

    class Finder(object):
        _rsswarden = True

        @staticmethod
        def find_spec(name, path=None, target_module=None):
            if name not in targets:
                return ours(name) if name.startswith(package + ".") else None
            try:
                return find(name, path, target_module)
            except Exception:
                return None

    for finder in sys.meta_path:
        if isinstance(finder, type) and "_rsswarden" in vars(finder):
            return  # a run inside a run: the inner one was first
    sys.meta_path.insert(0, Finder)


def _leave(here):
    """Takes here off sys.path."""
    sys.path[:] = [p for p in sys.path if not p or os.path.abspath(p) != here]
    sys.path_importer_cache.pop(here, None)


def _chain():
    """Imports the sitecustomize that would have been found without this one.

    What it raises is left to site, which meets it as it would without us: that
    there is none, too, and then sys.modules has none.
    """
    del sys.modules["sitecustomize"]
    __import__("sitecustomize")


try:
    _here = os.path.dirname(os.path.abspath(__file__))
    _leave(_here)
    if sys.version_info >= (3, 8) and sys.implementation.name == "cpython" and os.environ.get("RSSWARDEN_DIR"):
        _arm(_here)
except Exception:
    pass
if __name__ == "sitecustomize":
    _chain()
