package loader

import (
	"fmt"
	"testing"
)

// TestOutcomeOfAReapedWorker: a fork server reaps a worker first and says its
// status then, and where the program waits for its children itself nobody
// knows it.
func TestOutcomeOfAReapedWorker(t *testing.T) {
	_, dir := hooked(t)
	const script = `
import os, sys, types
package = types.ModuleType("_rsswarden"); package.__path__ = [os.path.join(%q, "_rsswarden")]
sys.modules["_rsswarden"] = package
from _rsswarden import birth
child = os.fork()
if not child: os._exit(0)
os.wait()
class Process:
    pid, exitcode = child, None
    def __init__(self, says): self.says = says
    def is_alive(self): return self.exitcode is None
    def join(self, timeout): self.exitcode = self.says
for says in (0, 7, None):
    process = Process(says)
    print(birth.ended(process), process.exitcode, birth.outcome(process, 0))
`
	const want = `True None {'exit': 0, 'why': ''}
True None {'exit': 7, 'why': ''}
True None {'exit': -1, 'why': 'exit status unknown'}
`
	if out := runPython(t, nil, "-c", fmt.Sprintf(script, dir)); out != want {
		t.Errorf("said:\n%swant:\n%s", out, want)
	}
}
