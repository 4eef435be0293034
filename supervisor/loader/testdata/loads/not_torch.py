# hello: 1, tried with one Python
import os, sys
sys.path.insert(0, os.path.join(sys.path[0], "other_shape"))
import torch.utils.data.dataloader as d; print(d.mark)
