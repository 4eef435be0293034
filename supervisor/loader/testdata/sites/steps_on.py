# What programs that instrument others do: as we.
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
at = sys.path.index(here)
del sys.path[at]
mine = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = mine
finally:
    sys.path.insert(at, here)
