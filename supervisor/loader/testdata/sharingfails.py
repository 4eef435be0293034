# Has each function that looks for tensors raise.
import multiprocessing, resource, sys, types
import torch
patch = sys.modules["_rsswarden.patch"]
from _rsswarden import channel, contents, sharing
class Data(torch.utils.data.Dataset):
    def __init__(self): self.items, self.other = [torch.zeros(9) for _ in range(300)], {1, 2}
loader = torch.utils.data.DataLoader(Data(), num_workers=2)
def look(): patch._guarded(sharing.warn, loader, patch._torch, patch._here)
look()
assert multiprocessing.get_start_method(allow_none=True) is None, "the start method was settled"
multiprocessing.set_start_method("spawn")
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 1000))
settings = channel._dir + "/settings"
for garbage in ("", "{", "[]", "null", '{"v":2,"nofile":9000}', '{"v":1,"nofile":[]}', '{"v":1,"nofile":1e400}', "[" * 60000):
    with open(settings, "w") as file: file.write(garbage)
    look()
    assert not patch._off and resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300, garbage
with open(settings, "w") as file: file.write('{"v":1,"nofile":400}')
class Fault(Exception): pass
def fails(*arguments, **keywords): raise Fault
tried = 0
for owner in (sharing, contents, contents.Contents, contents._Plan, channel):
    for name, value in list(vars(owner).items()):
        if not isinstance(value, types.FunctionType) or owner is channel and name != "nofile" or name == "warn": continue
        setattr(owner, name, fails)
        patch._off = False
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 1000))
        loader.multiprocessing_context = "forkserver" if name == "_send" else None
        look()
        if not patch._off: print("not off:", owner.__name__, name)
        setattr(owner, name, value)
        tried += 1
patch._off, loader.multiprocessing_context = False, None
look()
print(tried > 15, patch._off, resource.getrlimit(resource.RLIMIT_NOFILE))
