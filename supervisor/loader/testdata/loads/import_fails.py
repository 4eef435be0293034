# hello: 0
import os, sys
sys.path.insert(0, os.path.join(sys.path[0], "broken"))
for _ in range(2):
    try: import torch.utils.data.dataloader
    except ImportError as e: print(e, e.name, sorted(m for m in sys.modules if "torch" in m))
