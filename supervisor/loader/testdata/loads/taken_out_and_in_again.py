# hello: 1, tried with one Python
import sys, torch.utils.data.dataloader
del sys.modules["torch.utils.data.dataloader"]
import torch.utils.data.dataloader as d; print(d.mark)
