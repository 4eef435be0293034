# hello: 1
import multiprocessing, sys
def child(q):
    import torch.utils.data.dataloader as d
    q.put((d.mark, sys.path))
if __name__ == "__main__":
    import torch.utils.data.dataloader
    c = multiprocessing.get_context("spawn"); q = c.SimpleQueue()
    p = c.Process(target=child, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)
