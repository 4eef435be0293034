# hello: 1
import sys
from importlib.machinery import PathFinder
class Theirs:
    @staticmethod
    def find_spec(name, path=None, target=None): return PathFinder.find_spec(name, path, target)
sys.meta_path.insert(0, Theirs)
import torch; sys.meta_path.remove(Theirs)
class Broken:
    @staticmethod
    def find_spec(name, path=None, target=None): return None
sys.meta_path.append(Broken)
import torch.utils.data.dataloader as d; print(d.mark, type(d.__loader__).__name__, "exec_module" in vars(d.__loader__))
