# hello: 1, from Python 3.10 on
import os, shutil, sys, tempfile
folder = tempfile.mkdtemp()
name = shutil.make_archive(folder + "/torch", "zip", sys.path[0], "torch")
sys.path[0] = name
import torch.utils.data.dataloader as d; print(d.mark, type(d.__loader__).__name__)
shutil.rmtree(folder)
