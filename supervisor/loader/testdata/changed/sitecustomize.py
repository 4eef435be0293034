# Has torch's own text changed as it is imported, so that to the hook it is another version of it.
import importlib.machinery, os, sys

class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, name):
        path = self.get_filename(name)
        return self.source_to_code(self.get_data(path), path)
    def get_data(self, path):
        text = super().get_data(path)
        old, new = (s.encode() for s in os.environ["RENAME"].split(" to "))
        assert old in text
        return text.replace(old, new)

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch.utils.data." + os.environ["RENAME_IN"]:
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            spec.loader = Loader(name, spec.origin)
            return spec

sys.meta_path.insert(1, Finder)
