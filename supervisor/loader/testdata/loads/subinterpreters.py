# hello: 0, tried with one Python
import sys
try: import _interpreters as i
except ImportError:
    try: import _xxsubinterpreters as i
    except ImportError: i = None
if i is not None:
    n = i.create()
    i.run_string(n, "import sys; sys.path.insert(0, %r); import torch; print(sys.path, 'sitecustomize' in sys.modules); sys.stdout.flush()" % sys.path[0])
    i.destroy(n)
print("done")
