# hello: 1
import os, sys, torch.utils.data.dataloader as d
for _ in range(3):
    pid = os.fork()
    if not pid:
        import torch.utils.data.dataloader
        sys.exit(d.mark)
    print(os.waitpid(pid, 0)[1])
