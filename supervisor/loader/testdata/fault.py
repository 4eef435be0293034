"""Lists the functions of the hook, or copies it with a fault in one of them.

    fault.py list HOOK
    fault.py KIND HOOK COPY MODULE.FUNCTION

KIND is raise, slow (5 s at the first call in each process), or raise:N, which
raises before statement N of the function instead of at its start. Each process
that gets there says so in the file $STARTED.reached.
"""
import ast
import os
import shutil
import sys

# The guards that keep our errors from the program: there is nothing around these.
GUARDS = {"patch._guarded", "patch._Before.__get__", "patch._Fetch.__get__", "patch._Fetch._watched",
          "trim.Watched.__iter__", "stateful.Gate.put", "stateful.Gate._ask", "stateful.Gate.__getattr__",
          "fork_helper._Reader.get", "fork_helper._Serving._begin",
          "stateful.Parts.is_answer", "stateful.Recycler.abandon", "stateful.Recycler.reopen"}

FAULT = """
import os as _os, time as _time
with open(_os.environ["STARTED"] + ".reached", "a") as _file:
    _file.write("%d\\n" % _os.getpid())
"""
RAISE = 'raise ZeroDivisionError("injected into {name}")\n'
SLOW = """
if _os.getpid() not in globals().setdefault("_slept", set()):
    _slept.add(_os.getpid())
    _time.sleep(5)
"""


def functions(tree, prefix):
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, prefix + node.name + ".")


def blocks(body):
    """Yields the lists of statements below body with each place in them."""
    for place, node in enumerate(body):
        if isinstance(node, (ast.Global, ast.Nonlocal)) or (
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        yield body, place
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from blocks(getattr(node, field, []))


def modules(hook):
    folder = os.path.join(hook, "_rsswarden")
    for file in sorted(os.listdir(folder)):
        if file.endswith(".py"):
            path = os.path.join(folder, file)
            with open(path) as source:
                yield path, file[:-3], ast.parse(source.read())


def main():
    kind, hook = sys.argv[1:3]
    if kind == "list":
        for _, module, tree in modules(hook):
            for name, node in functions(tree, module + "."):
                if name not in GUARDS:
                    print(name, len(list(blocks(node.body))))
        return
    copy, wanted = sys.argv[3:]
    shutil.copytree(hook, copy)
    for path, module, tree in modules(copy):
        for name, node in functions(tree, module + "."):
            if name != wanted:
                continue
            kind, _, number = kind.partition(":")
            body, place = list(blocks(node.body))[int(number or 0)]
            body[place:place] = ast.parse((FAULT + (SLOW if kind == "slow" else RAISE)).format(name=wanted)).body
            with open(path, "w") as source:
                source.write(ast.unparse(tree))
            return
    sys.exit("no function " + wanted)


if __name__ == "__main__":
    main()
