import ast
import json
import os
import re
import sys
import unittest

import hook
from _rsswarden import fingerprint, known

LOOP = "def _worker_loop(dataset, index_queue, base_seed, worker_id): pass"
CONSTRUCTOR = """
class Iterator:
    def __init__(self, loader):
        for i in range(2):
            queue = context.Queue()
            w = context.Process(target=worker._worker_loop, args=(self._dataset, queue, self._base_seed, i))
"""
TEXTS = {"_utils.worker": LOOP, "_utils.fetch": "", "_utils.pin_memory": "def _pin_memory_loop(): pass",
         "_utils.signal_handling": "def _set_SIGCHLD_handler(): pass", "dataloader": """
class _BaseDataLoaderIter:
    def __init__(self, loader): self.a = loader
    def _reset(self, loader): pass
""" + CONSTRUCTOR.replace("Iterator", fingerprint.ITERATOR) + "".join(
    "    def %s(self, x=1): return x + 1\n" % name for name in fingerprint._RESTS_ON[0][2] if name != "__init__")}
DATALOADER = TEXTS["dataloader"]


def understand(**changed):
    texts = dict(TEXTS, **changed)
    return fingerprint.understand({name: text.encode() for name, text in texts.items()})


class Arguments(unittest.TestCase):
    def test_how_a_worker_is_started(self):
        with open(os.path.join(hook.HERE, "arguments.json")) as file:
            rows = json.load(file)
        self.assertGreater(len(rows), 15)
        for row in rows:
            with self.subTest(row["name"]):
                text = LOOP + "\n" + CONSTRUCTOR
                self.assertIn(row["old"], text)
                try:
                    text = fingerprint.Text(text.replace(row["old"], row["new"], 1) if row["old"] else text, "it")
                    found = fingerprint.arguments(text.function("Iterator", "__init__"), text.function("_worker_loop"))
                    said = " ".join("%s=%s.%s" % (name, how, of) for name, (how, of) in found.items())
                except fingerprint.Unknown as error:
                    said = str(error)
                want = row["want"]
                if not hasattr(ast, "unparse"):  # Python 3.8 says an expression in its own way
                    want = re.split("(?<= is given )|(?<=workers by )", want)[0]
                self.assertIn(want, said.replace("\n", " "))


class Digest(unittest.TestCase):
    def test_what_says_the_same_has_the_same(self):
        bare = understand()
        self.assertIsNone(bare.why)
        # Every Python makes the same: known.py has one for all of them.
        self.assertEqual(bare.digest, "0f650365263e71a2e97bae89aea54dd9")
        for name, text in (("a comment", DATALOADER + "# more\n"), ("a docstring", DATALOADER.replace("self.a = loader", "'it'; self.a = loader")),
                           ("an annotation", DATALOADER.replace("x=1)", "x: int = 1)", 1)), ("another class", DATALOADER + "class C: pass\n"),
                           ("text to the left", DATALOADER.replace("self.a = loader", "'''it:\nclass C: pass\n'''; self.a = loader")),
                           ("the name in a string", DATALOADER + "'''\nclass _BaseDataLoaderIter:\n'''\n")):
            with self.subTest(name):
                got = understand(dataloader=text)
                self.assertEqual((got.digest, got.why), (bare.digest, None))
                self.assertNotEqual(got.key, bare.key)

    def test_what_says_another_thing_has_another(self):
        seen = {understand().digest}
        for name, module, old, new in (
                ("a number", "dataloader", "x + 1", "x + 2"), ("a default", "dataloader", "x=1", "x=2"),
                ("a name", "dataloader", "self.a", "self.b"), ("an operator", "dataloader", "x + 1", "x - 1"),
                ("the loop's body", "_utils.worker", "pass", "return"), ("of what may be missing", "_utils.pin_memory", "pass", "return 1"),
                ("it is missing", "_utils.pin_memory", "_pin_memory_loop", "_other"), ("a handler", "_utils.signal_handling", "pass", "return")):
            with self.subTest(name):
                self.assertIn(old, TEXTS[module])
                digest = understand(**{module: TEXTS[module].replace(old, new)}).digest
                self.assertNotIn(digest, seen)
                seen.add(digest)

    def test_what_is_not_understood_is_named(self):
        for text, why in (("def", "cannot be parsed"), ("", "torch has no %s" % fingerprint.ITERATOR), (DATALOADER * 2, "torch has 2"),
                          (DATALOADER.replace("_try_get_data", "_try"), "torch has no %s._try_get_data" % fingerprint.ITERATOR)):
            self.assertIn(why, understand(dataloader=text).why)

    def test_a_function_that_runs_is_the_one_in_the_text(self):
        tree = ast.parse("def f(a, b):\n    c = a\n    return c.x(b)").body[0]
        scope = {}
        exec("def f(a, b):\n    c = a\n    return c.x(b)\ng = lambda a: a\ndef h(a, b):\n    return a.y(b)\nh.__name__ = 'f'", scope)
        self.assertTrue(fingerprint.agrees(tree, scope["f"]))
        self.assertFalse(fingerprint.agrees(tree, scope["g"]) or fingerprint.agrees(tree, scope["h"]) or fingerprint.agrees(tree, len))


class Known(unittest.TestCase):
    def test_with_the_pythons_that_it_was_run_on(self):
        here = "%d.%d" % sys.version_info[:2]
        for digest, pythons in known.DIGESTS.items():
            self.assertRegex(digest, "^[0-9a-f]{32}$")
            self.assertEqual(fingerprint.is_known(digest), here in pythons)
        self.assertFalse(fingerprint.is_known("0" * 32) or fingerprint.is_known(None))
