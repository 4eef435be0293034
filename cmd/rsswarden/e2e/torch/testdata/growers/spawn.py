# A list of tensors, sent to a worker that is not forked: a descriptor and a mapping
# for each.
import resource, time
import torch
from torch.utils.data import DataLoader, Dataset
from lasting import lasting

torch.set_num_threads(1)


class Samples(Dataset):
    def __init__(self):
        self.tensors = [torch.full((80,), float(i)) for i in range(12_000)]

    def __len__(self):
        return 10 * len(self.tensors)

    def __getitem__(self, i):
        time.sleep(0.01)
        return self.tensors[i % len(self.tensors)]


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    samples = Samples()
    time.sleep(2)
    over = lasting(8)
    for batch in DataLoader(samples, batch_size=8, num_workers=1, multiprocessing_context="spawn"):
        if over():
            break
