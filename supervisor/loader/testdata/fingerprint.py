# What the hook's fingerprint says; sys.argv[1] is the question.
import importlib.util, json, sys

import hookonly
from _rsswarden import fingerprint, known

def torch():
    """The version of torch and its folder, without the seconds of an import."""
    folder, scope = importlib.util.find_spec("torch").submodule_search_locations[0], {}
    exec(open(folder + "/version.py").read(), scope)
    return scope["__version__"].split("+")[0], folder + "/utils/data"

def recycles():
    import torch.utils.data.dataloader as module
    got = fingerprint.read(module, module._MultiProcessingDataLoaderIter.__init__)
    print(got.why, fingerprint.is_known(got.digest), got.digest, "of torch", module.torch.__version__)

def digests(): print(json.dumps(known.DIGESTS))

def said(folder):
    """The digest of a text, or why it is not understood, and how a worker is given the data set."""
    got = fingerprint.understand(fingerprint.below(folder))
    return got.why or got.digest, ".".join(got.filled.get("dataset") or got.filled.get("dataset_holder") or ("", ""))

def text(folder): print(*said(folder))

def release():
    version, folder = torch()
    print(version, *said(folder))

def ships(): print(fingerprint.is_known(fingerprint.understand(fingerprint.below(torch()[1])).digest))

def binaries(): print("%s/%d.%d" % ((torch()[0],) + sys.version_info[:2]))

def platform():
    release = dict(line.rstrip().split("=", 1) for line in open("/etc/os-release"))
    name = release.get("VERSION_ID", "sid")
    print("%s (Debian %s, Python %d.%d)" % ((".".join(torch()[0].split(".")[:2]), name.strip('"')) + sys.version_info[:2]))

def mutants(file):
    bare = fingerprint.below(torch()[1])
    keys = {fingerprint.understand(bare).key}
    for mutant in json.load(open(file)):
        texts = dict(bare)
        for file, old, new in mutant["edit"]:
            name = file[:-3].replace("/", ".")
            assert old.encode() in texts[name], (file, old)
            texts[name] = texts[name].replace(old.encode(), new.encode())
        got = fingerprint.understand(texts)
        assert got.key not in keys, mutant
        keys.add(got.key)
        print(json.dumps([mutant["name"], got.why or "", fingerprint.is_known(got.digest)]))

globals()[sys.argv[1]](*sys.argv[2:])
