# hello: 0, tried with one Python
import os
os.environ.pop("RSSWARDEN_DIR", None)
import torch.utils.data.dataloader as d; print(d.mark)
