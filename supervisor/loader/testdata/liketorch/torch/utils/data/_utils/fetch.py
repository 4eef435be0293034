class _MapDatasetFetcher:
    def fetch(self, index): return index
