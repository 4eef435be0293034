"""Prints what comes of what few programs do, which must be as bare."""
import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from concurrent import futures
from multiprocessing import queues, reduction


def number(_):
    return multiprocessing.current_process()._identity


def dies(_):
    os._exit(1)


def write(fd):
    os.write(fd, b"hello")


def finalized():
    """Has an object of a module that needs the module at the interpreter's end."""
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "zip")
        print(subprocess.run([sys.executable, __file__, "zips", path], stderr=subprocess.PIPE).stderr)
        print(zipfile.ZipFile(path).namelist())


def zips():
    global FILE
    FILE = zipfile.ZipFile(sys.argv[2], "w")
    FILE.writestr("a", "b")
    with multiprocessing.Pool(1) as pool:
        pool.map(abs, [-1])


def succeeded():
    """Has workers that die, and a pipe that was opened since."""
    with multiprocessing.Pool(1) as pool:
        cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        first = pool._pool[0]
        pool.apply_async(dies, (0,))
        while first in pool._pool:
            time.sleep(0.01)
        print(pool.apply(number, (0,)), flush=True)
        pool.apply(write, (cat.stdin.fileno(),))
    cat.stdin.close()
    cat.wait()


def limited():
    """Has the pool end its workers while the main thread is in code of its own."""
    gc.disable()
    for _ in range(3):
        pool = multiprocessing.Pool(2, maxtasksperchild=1)
        results = pool.map_async(number, range(8), chunksize=1)
        while not results.ready():
            time.sleep(0.02)
        pool.close()
        pool.join()
        del pool
        print(len(os.listdir("/proc/self/fd")))


class Squeezed:
    @staticmethod
    def dumps(value):
        return zlib.compress(bytes(reduction.ForkingPickler.dumps(value)))

    @staticmethod
    def loads(data):
        return reduction.ForkingPickler.loads(zlib.decompress(data))


class Wrapped(queues.Queue):
    def put(self, value, *arguments, **keywords):
        super().put(("wrapped", value), *arguments, **keywords)

    def get(self, *arguments, **keywords):
        return super().get(*arguments, **keywords)[1]


def loaders():
    """Waits for batches in two threads, and has queues and a pickler of its own."""
    import torch.utils.data
    from multiprocessing import context

    class Own(context.ForkContext):
        def Queue(self, maxsize=0):
            return Wrapped(maxsize, ctx=self.get_context())

        def get_context(self, method=None):
            return self if method is None else super().get_context(method)

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 10 ** 6

        def __getitem__(self, i):
            time.sleep(0.002)
            return i

    def loader(**more):
        return iter(torch.utils.data.DataLoader(Data(), 1, num_workers=2, **more))

    iterator = loader()
    results = iterator._data_queue  # what torch does around it knows no threads
    with futures.ThreadPoolExecutor(2) as threads:
        print(sorted(number for number, _ in threads.map(lambda _: results.get(timeout=30), range(4))))
    del iterator, results
    print([int(next(iterator)) for iterator in [loader(multiprocessing_context=Own())] for _ in range(60)] == list(range(60)))
    queues._ForkingPickler = Squeezed
    print([int(next(iterator)) for iterator in [loader()] for _ in range(60)] == list(range(60)))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
