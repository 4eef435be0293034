"""What every Python of a job under rsswarden runs at its start.

It parses on every Python from 2.7 on and does nothing below 3.8 but to step
aside. It leaves sys.path as it would be without it, puts one finder in front
that waits for torch.utils.data.dataloader, and runs the sitecustomize that it
stands before. It never imports torch, and a failure of its own is silent: the
program runs as it would without it.
"""
import os
import sys


def _arm(here):
    """Has the hook in here patch torch.utils.data.dataloader once that is imported."""
    target = "torch.utils.data.dataloader"
    package = "_rsswarden"

    def begin(module):
        """Loads the hook, which is not on sys.path, and gives it the module."""
        if package not in sys.modules:
            from importlib.util import module_from_spec, spec_from_file_location

            folder = os.path.join(here, package)
            spec = spec_from_file_location(
                package, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
            hook = module_from_spec(spec)
            sys.modules[package] = hook
            try:
                spec.loader.exec_module(hook)
            except BaseException:
                del sys.modules[package]
                raise
        sys.modules[package].begin(module)

    def find(name, path, target_module):
        """Returns what the other finders find, with begin after its execution."""
        for finder in list(sys.meta_path):
            if finder is not Finder and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target_module)
                if spec is not None:
                    break
        else:
            return None
        loader = spec.loader
        execute = loader.exec_module

        def exec_module(module):
            try:
                del loader.exec_module
            except Exception:
                pass
            execute(module)
            try:
                begin(module)
            except Exception:
                pass

        loader.exec_module = exec_module
        return spec

    class Finder(object):
        @staticmethod
        def find_spec(name, path=None, target_module=None):
            if name != target:
                return None
            try:
                return find(name, path, target_module)
            except Exception:
                return None

    sys.meta_path.insert(0, Finder)


def _leave(here):
    """Takes here off sys.path."""
    sys.path[:] = [p for p in sys.path if not p or os.path.abspath(p) != here]
    sys.path_importer_cache.pop(here, None)


def _chain():
    """Imports the sitecustomize that would have been found without this one.

    What it raises is left to site, which reports it as it would without us.
    """
    name = "sitecustomize"
    mine = sys.modules.pop(name)
    try:
        __import__(name)
    except ImportError as error:
        if getattr(error, "name", name) != name:
            raise
        if not hasattr(error, "name") and not str(error).endswith(" " + name):
            raise  # Python 2 has no name: the message ends with it
        sys.modules[name] = mine


try:
    _here = os.path.dirname(os.path.abspath(__file__))
    _leave(_here)
    if sys.version_info >= (3, 8) and os.environ.get("RSSWARDEN_DIR"):
        _arm(_here)
except Exception:
    pass
if __name__ == "sitecustomize":
    _chain()
