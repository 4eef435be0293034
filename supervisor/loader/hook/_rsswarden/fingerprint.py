"""What torch's text says of how it starts a worker, and whether that text is known.

Nothing here goes by torch's version: a release that did not touch what recycling
rests on counts as the one before, and one that did is noticed.

read       all of this for torch's own loader
source     the text of a module that was imported, as its loader has it
key        names the files that were read, for a verdict that is kept
Text       the text of a module, and the syntax trees of its functions, one by one
agrees     whether a function that runs is the one in the text
arguments  what fills each parameter of a worker's loop
digest     names the text of all the functions that recycling rests on

With folders of torch's below torch/utils/data as arguments this file prints their
digests, for known.py; nothing of torch is imported for that.
"""
import ast
import hashlib
import inspect
import re
import sys

OWN = ("index_queue", "worker_id", "base_seed")  # a replacement has its own

# The modules below torch.utils.data that are read, and what in them recycling rests on.
MODULES = ("dataloader", "_utils.worker", "_utils.signal_handling", "_utils.pin_memory", "_utils.fetch")
ITERATOR, LOOP = "_MultiProcessingDataLoaderIter", "_worker_loop"
_RESTS_ON = (
    ("dataloader", ITERATOR, ("__init__", "_reset", "_try_get_data", "_get_data", "_next_data", "_try_put_index",
                              "_process_data", "_mark_worker_as_unavailable", "_shutdown_workers")),
    ("dataloader", "_BaseDataLoaderIter", ("__init__", "_reset")),
    ("_utils.worker", None, (LOOP,)),
    ("_utils.signal_handling", None, ("_set_SIGCHLD_handler",)),
)
_ALSO = (  # where they are there
    ("dataloader", ITERATOR, ("__del__",)),
    ("dataloader", "_BaseDataLoaderIter", ("_next_index", "__next__")),
    ("_utils.pin_memory", None, ("_pin_memory_loop",)),
)


class Unknown(Exception):
    """Why a text is not understood, for people."""


class Read:
    """What was read of torch's text, and why recycling cannot rest on it, or None."""

    def __init__(self):
        self.filled, self.key, self.digest, self.why = {}, None, None, None


def read(dataloader, constructor):
    """Reads the text of torch.utils.data.dataloader; constructor is the __init__ that its iterator was defined with."""
    try:
        texts = sources(dataloader)
    except Unknown as error:
        got = Read()
        got.why = str(error)
        return got
    return understand(texts, constructor, dataloader._utils.worker._worker_loop)


def understand(texts, constructor=None, worker_loop=None):
    """Does the same with the texts of MODULES by name, and compares them with the two functions that run, where given."""
    got = Read()
    try:
        got.key = key(texts)
        found = {name: Text(text, name) for name, text in texts.items()}
        init, loop = found["dataloader"].function(ITERATOR, "__init__"), found["_utils.worker"].function(LOOP)
        got.filled = arguments(init, loop)
        got.digest = digest(found)
        for tree, given, owner in ((init, constructor, ITERATOR), (loop, worker_loop, None)):
            if given is not None and not agrees(tree, given, owner):
                raise Unknown("%s is not that of torch's source text" % tree.name)
    except Unknown as error:
        got.why = str(error)
    return got


def source(module):
    """Returns the text of a module as bytes. None is there where it came without, compiled or frozen."""
    name, spec = module.__name__, getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None) or ""
    if not origin.endswith(".py"):
        raise Unknown("there is no source text of %s (%s)" % (name, origin or "no file"))
    try:
        return bytes(spec.loader.get_data(origin))
    except Exception as error:
        raise Unknown("the source text of %s cannot be read: %s" % (name, error))


def sources(dataloader):
    """Returns the texts of MODULES by name; dataloader is the module torch.utils.data.dataloader."""
    texts = {}
    for name in MODULES:
        module = dataloader
        if name.startswith("_utils."):
            module = getattr(getattr(dataloader, "_utils", None), name[len("_utils."):], None)
            if module is None:
                raise Unknown("torch has no torch.utils.data.%s" % name)
        texts[name] = source(module)
    return texts


def below(folder):
    """Returns the texts of MODULES by name, of a torch that is not imported; folder is its utils/data."""
    texts = {}
    for name in MODULES:
        with open("%s/%s.py" % (folder, name.replace(".", "/")), "rb") as file:
            texts[name] = file.read()
    return texts


def key(texts):
    """Names the texts, byte by byte, and the minor version of this Python."""
    total = hashlib.sha256(b"%d.%d" % sys.version_info[:2])
    for name in sorted(texts):
        total.update(b"\0%s %d\0" % (name.encode(), len(texts[name])))
        total.update(texts[name])
    return total.hexdigest()[:32]


class Text:
    """The text of a module, of which each function is parsed alone: the tree of the whole would leave 3 MiB behind."""

    def __init__(self, text, name):
        self._text, self._name = text, name
        self._lines = (text if isinstance(text, str) else text.decode("utf-8", "replace")).split("\n")

    def function(self, *path):
        """Returns the tree of a function that is defined once: function("Class", "method")."""
        tree = self._alone(path)
        if tree is not None:
            return tree
        try:
            tree = ast.parse(self._text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Unknown("the source text of %s cannot be parsed: %s" % (self._name, error))
        for name in path:
            found = [node for node in tree.body if getattr(node, "name", None) == name
                     and isinstance(node, (ast.FunctionDef, ast.ClassDef))]
            if len(found) != 1:
                raise Unknown("torch has %s %s" % ("no" if not found else len(found), ".".join(path)))
            tree = found[0]
        return tree

    def _alone(self, path):
        """Returns the same by indentation, or None where that does not find it."""
        first, end, depth = 0, len(self._lines), 0
        for at, name in enumerate(path):
            if at > 0:
                depth = min((_depth(line) for line in self._lines[first:end] if _DEF.match(line)), default=0)
            start = re.compile(r"[ \t]{%d}(def|class)\s+%s\b" % (depth, re.escape(name)))
            found = [n for n in range(first, end) if start.match(self._lines[n])]
            if len(found) != 1:
                return None
            first = found[0]
            end = next((n for n in range(first + 1, end) if self._is_beyond(n, depth)), end)
        while first > 0 and self._lines[first - 1].startswith(" " * depth + "@"):
            first -= 1
        try:
            tree = ast.parse("\n".join(["if 1:"] * (depth > 0) + self._lines[first:end])).body[0]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return tree.body[0] if depth > 0 else tree

    def _is_beyond(self, number, depth):
        """Says whether a line belongs to no block that is deeper."""
        line = self._lines[number]
        return line.strip() != "" and _depth(line) <= depth and line.lstrip()[0] not in "#)]}"


_DEF = re.compile(r"[ \t]+(async\s+)?def\s")


def _depth(line):
    """Returns how many characters a line is indented."""
    return len(line) - len(line.lstrip())


def agrees(tree, given, owner=None):
    """Says whether given, a function that runs, is that of a tree: its file may have been replaced since, or itself."""
    code = getattr(given if owner is None else inspect.unwrap(given), "__code__", None)  # around the latter is ours
    body = [tree]
    if owner is not None:
        body = [ast.ClassDef(name=owner, bases=[], keywords=[], body=body, decorator_list=[], type_params=[],
                             lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)]
    made = compile(ast.Module(body=body, type_ignores=[]), "torch", "exec", 0, True)
    for name in ([owner] if owner is not None else []) + [tree.name]:
        made = next((one for one in made.co_consts if getattr(one, "co_name", None) == name), None)
        if made is None:
            return False
    return code is not None and all(getattr(code, name) == getattr(made, name) for name in (
        "co_name", "co_names", "co_varnames", "co_argcount"))


def _names(loop):
    """Returns the names of a function's parameters, which must all be plain ones."""
    given = loop.args
    if given.vararg or given.kwarg or given.kwonlyargs or getattr(given, "posonlyargs", ()):
        raise Unknown("%s takes more than plain parameters" % loop.name)
    return [argument.arg for argument in given.args]


def _said(node):
    """Returns the text of an expression."""
    try:
        return ast.unparse(node)[:120]
    except Exception:  # before Python 3.9 there is none
        return ast.dump(node)[:120]


def _last(node):
    """Returns the last part of a dotted name."""
    return getattr(node, "attr", None) or getattr(node, "id", None)


def _attribute(node):
    """Returns NAME of self.NAME."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr


def _assigned(constructor):
    """Returns the values of the local names that the constructor sets exactly once, by a plain assignment."""
    times, values = {}, {}
    for node in ast.walk(constructor):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            times[node.id] = times.get(node.id, 0) + 1
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
    return {name: value for name, value in values.items() if times[name] == 1}


def arguments(constructor, loop, own=OWN, form=None):
    """Returns what fills each parameter of loop, in order, where constructor starts a worker.

    The values are pairs: ("own", "") for what a replacement has of its own, ("is", NAME)
    for the iterator's attribute NAME, ("in", NAME) for a fresh list that holds it, which the
    worker empties. form(parameter, expression) may name another pair for an
    expression that is none of these, or return None.
    """
    calls = [node for node in ast.walk(constructor) if isinstance(node, ast.Call) and any(
        word.arg == "target" and _last(word.value) == loop.name for word in node.keywords)]
    if len(calls) != 1:
        raise Unknown("torch starts %s in %s places" % (loop.name, len(calls) or "no"))
    call = calls[0]
    given = {word.arg: word.value for word in call.keywords}
    if _last(call.func) != "Process" or call.args or set(given) != {"target", "args"} \
            or not isinstance(given["args"], ast.Tuple):
        raise Unknown("torch starts its workers by %s" % _said(call))
    names, values = _names(loop), given["args"].elts
    if len(names) != len(values):
        raise Unknown("%s takes %d arguments, and is given %d" % (loop.name, len(names), len(values)))
    missing = [name for name in own if name not in names]
    if missing:
        raise Unknown("%s has no parameter %s: %s" % (loop.name, ", ".join(missing), ", ".join(names)))
    assigned, found = _assigned(constructor), {}
    for name, node in zip(names, values):
        if name in own:
            found[name] = "own", ""
            continue
        if isinstance(node, ast.Name) and node.id in assigned:
            node = assigned[node.id]
        if _attribute(node):
            found[name] = "is", _attribute(node)
        elif isinstance(node, ast.List) and len(node.elts) == 1 and _attribute(node.elts[0]):
            found[name] = "in", _attribute(node.elts[0])
        else:
            found[name] = form(name, node) if form is not None else None
            if found[name] is None:
                raise Unknown("%s is given %s as %s" % (loop.name, _said(node), name))
    return found


_SILENT = ("ctx", "kind", "type_comment", "annotation", "returns", "type_params")


def _write(node, total):
    """Adds a tree, without comments, docstrings, annotations and places. Every Python from 3.8 on adds the same."""
    if isinstance(node, list):
        total.append("[")
        for one in node:
            _write(one, total)
        total.append("]")
    elif isinstance(node, ast.AST):
        kind = type(node).__name__
        if kind == "Index":  # of Python 3.8
            _write(node.value, total)
            return
        total.append("(" + kind)
        for name in node._fields:
            held = getattr(node, name, None)
            if held is None or held == [] or name in _SILENT:
                continue
            if name == "body" and isinstance(held, list):
                held = [one for one in held if not _is_text(one)]
            total.append(" " + name + "=")
            _write(held, total)
        total.append(")")
    else:
        total.append(repr(node))


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def digest(found):
    """Names what the functions that recycling rests on say, in the texts of their modules."""
    total = hashlib.sha256()

    def add(text):
        total.update(text.encode("utf-8", "backslashreplace"))

    def tree(module, path):
        parts = []
        _write(found[module].function(*path), parts)
        return "".join(parts)

    for module, owner, names in _RESTS_ON:
        for name in names:
            add(tree(module, (owner, name) if owner else (name,)))
    for module, owner, names in _ALSO:
        for name in names:
            try:
                add(tree(module, (owner, name) if owner else (name,)))
            except Unknown:
                add("no " + name)
    return total.hexdigest()[:32]


def is_known(name):
    """Says whether recycling was run with a text of that digest and this Python."""
    from _rsswarden import known

    return "%d.%d" % sys.version_info[:2] in known.DIGESTS.get(name, ())


def _main(folders):
    for folder in folders:
        got = understand(below(folder))
        print(got.digest, got.why or "understood", folder)


if __name__ == "__main__":
    _main(sys.argv[1:])
