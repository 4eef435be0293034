# Has the hook report this torch as one of unknown text.
import sys
import torch.utils.data.dataloader
from _rsswarden import patch
torch_ = patch._torch
assert torch_.read(), torch_.why
torch_.known = False
assert torch_.trial() == "waiting", torch_.why
print(torch_.key)
