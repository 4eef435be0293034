import importlib.machinery, importlib.util
class Frozen:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            made = importlib.machinery.ModuleSpec(name, cls, origin="frozen", is_package=spec.submodule_search_locations is not None)
            made.loader_state = spec.loader.get_code(name)
            if made.submodule_search_locations is not None: made.submodule_search_locations += spec.submodule_search_locations
            return made
    @staticmethod
    def create_module(spec): pass
    @staticmethod
    def exec_module(module): exec(module.__spec__.loader_state, vars(module))
sys.meta_path.insert(1, Frozen)
