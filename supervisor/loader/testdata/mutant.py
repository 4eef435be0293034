"""Makes a torch that differs in its text from the one that is installed.

    mutant.py FOLDER EDIT...

EDIT is FILE, OLD and NEW as a JSON list; FILE is below torch/utils/data. FOLDER is made and
goes on PYTHONPATH: what is in it are links to the installed torch, but for those files.
"""
import importlib.util
import json
import os
import shutil
import sys


def edited(text, old, new):
    if old not in text:
        sys.exit("no %r in it" % old)
    return text.replace(old, new)


def main():
    folder, edits = sys.argv[1], [json.loads(edit) for edit in sys.argv[2:]]
    origin = importlib.util.find_spec("torch").submodule_search_locations[0]
    to = folder
    for part in ("torch", "utils"):
        to = os.path.join(to, part)
        os.makedirs(to)
        for name in os.listdir(origin):
            if name not in ("__pycache__", {"torch": "utils", "utils": "data"}[part]):
                os.symlink(os.path.join(origin, name), os.path.join(to, name))
        origin = os.path.join(origin, {"torch": "utils", "utils": "data"}[part])
    to = os.path.join(to, "data")
    shutil.copytree(origin, to, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in edits:
        path = os.path.join(to, file)
        with open(path) as source:
            text = edited(source.read(), old, new)
        with open(path, "w") as source:
            source.write(text)


if __name__ == "__main__":
    main()
