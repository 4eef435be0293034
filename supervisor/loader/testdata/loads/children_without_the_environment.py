# hello: 0, tried with one Python
import os, subprocess, sys
code = "import sys; sys.path.insert(0, %r); import torch.utils.data.dataloader as d; print(d.mark, sys.path)" % sys.path[0]
for flags, env in (([], {}), (["-I"], None), (["-E"], None)):
    print(subprocess.check_output([sys.executable] + flags + ["-c", code], env=env))
