# hello: 1
import torch.utils.data.dataloader as d; print(d.mark)
