# hello: 1, tried with one Python
import sys, importlib.util
class Loader:
    @classmethod
    def create_module(cls, spec): return None
    @classmethod
    def exec_module(cls, module): module.mark = 3
class Theirs:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.endswith("dataloader"): return importlib.util.spec_from_loader(name, Loader)
import torch.utils.data
sys.meta_path.insert(1, Theirs)
import torch.utils.data.dataloader as d; print(d.mark, type(Loader.__dict__["exec_module"]).__name__, d.__loader__, d.__spec__.loader)
