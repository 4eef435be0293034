class _MapDatasetFetcher:
    def __init__(self, dataset):
        self.dataset, self.auto_collation = dataset, True

    def fetch(self, index):
        return [self.dataset[i] for i in index]
