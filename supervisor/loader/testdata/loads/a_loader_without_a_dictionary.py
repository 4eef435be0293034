# hello: 1, tried with one Python
import sys, importlib.util
class Loader:
    __slots__ = "marks",
    def create_module(self, spec): return None
    def exec_module(self, module): module.mark = self.marks
class Theirs:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.endswith("dataloader"):
            spec = importlib.util.spec_from_loader(name, Loader())
            spec.loader.marks = 4
            return spec
import torch.utils.data
sys.meta_path.insert(1, Theirs)
import torch.utils.data.dataloader as d; print(d.mark, type(d.__loader__), d.__spec__.loader is d.__loader__)
