# hello: 0, tried with one Python
import sys
class Theirs:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.endswith("dataloader"): raise RuntimeError("theirs")
import torch.utils.data
sys.meta_path.insert(1, Theirs)
try: import torch.utils.data.dataloader
except RuntimeError as e: print(e)
