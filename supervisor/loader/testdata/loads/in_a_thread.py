# hello: 1
import threading
t = threading.Thread(target=lambda: print(__import__("torch.utils.data.dataloader").__version__))
t.start(); t.join(); print(threading.active_count())
