# hello: 1
import importlib, torch.utils.data.dataloader as d
old = d._MultiProcessingDataLoaderIter
for _ in range(3): importlib.reload(d)
print(d.mark, old is d._MultiProcessingDataLoaderIter)
