# Makes the modules of the hook in the directory sys.argv[1] importable, without torch.
import os
import sys
import types

package = types.ModuleType("_rsswarden")
package.__path__ = [os.path.join(sys.argv.pop(1), "_rsswarden")]
sys.modules["_rsswarden"] = package
