# hello: 0, tried with one Python
import sys, types, warnings
warnings.simplefilter("ignore")
class Old:
    @staticmethod
    def find_module(name, path=None): return Old if name.endswith("dataloader") else None
    @staticmethod
    def load_module(name):
        sys.modules[name] = m = types.ModuleType(name); m.mark = 2; return m
import torch.utils.data
sys.meta_path.insert(1, Old)
import torch.utils.data.dataloader as d; print(d.mark)
