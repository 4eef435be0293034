"""The samplers of the tests' trainer. Each is recorded: what came is compared with what was drawn."""
import itertools

import torch
from torch.utils.data import (BatchSampler, RandomSampler, SequentialSampler, WeightedRandomSampler)
from torch.utils.data.distributed import DistributedSampler


class Part(torch.utils.data.Sampler):
    """Draws a permutation of part of the records."""

    def __init__(self, count, part, generator):
        self.count, self.part, self.generator = count, part, generator

    def __len__(self):
        return self.part

    def __iter__(self):
        yield from torch.randperm(self.count, generator=self.generator).tolist()[:self.part]


class Infinite(torch.utils.data.Sampler):
    """Never ends."""

    def __init__(self, count, generator):
        self.count, self.generator = count, generator

    def __iter__(self):
        while True:
            yield from torch.randperm(self.count, generator=self.generator).tolist()


class Recorded(torch.utils.data.Sampler):
    """Keeps what another sampler draws, a list for each time it was begun."""

    def __init__(self, inner):
        self.inner, self.drawn = inner, []

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        drawn = []
        self.drawn.append(drawn)
        for index in self.inner:
            drawn.extend(index if isinstance(index, list) else [index])
            yield index


class Repeated:
    """A batch sampler that repeats for ever."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        return itertools.chain.from_iterable(self.inner for _ in itertools.count())


def make(kind, count, part, batch, generator):
    """Returns the recorded sampler and the arguments that give it to a DataLoader."""
    if kind == "batch":
        recorded = Recorded(BatchSampler(Part(count, part, generator), batch, False))
        return recorded, {"batch_sampler": recorded}
    recorded = Recorded({
        "part": lambda: Part(count, part, generator),
        "random": lambda: RandomSampler(range(part), generator=generator),
        "sequential": lambda: SequentialSampler(range(part)),
        "weighted": lambda: WeightedRandomSampler([1.0 + i % 7 for i in range(count)], part, generator=generator),
        "infinite": lambda: Infinite(count, generator),
        "distributed": lambda: DistributedSampler(range(2 * part), num_replicas=2, rank=1),
    }[kind]())
    return recorded, {"sampler": recorded, "batch_size": batch}
