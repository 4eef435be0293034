import os
import tokenize
import unittest
from importlib import import_module

import hook


class Modules(unittest.TestCase):
    def test_each_is_imported_without_torch(self):
        for name in hook.MODULES:
            with self.subTest(name):
                self.assertTrue(import_module("_rsswarden." + name).__doc__)

    def test_what_is_there_before_any_module(self):
        for path in (os.path.join(hook.FOLDER, "__init__.py"), os.path.join(os.path.dirname(hook.FOLDER), "sitecustomize.py")):
            with tokenize.open(path) as file:
                compile(file.read(), path, "exec", dont_inherit=True)
