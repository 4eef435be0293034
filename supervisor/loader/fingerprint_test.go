package loader

import (
	"fmt"
	"strings"
	"testing"
)

// importHook makes the modules of the hook in dir importable in a program.
const importHook = `
import os, sys, types
package = types.ModuleType("_rsswarden"); package.__path__ = [os.path.join(%q, "_rsswarden")]
sys.modules["_rsswarden"] = package
from _rsswarden import fingerprint
`

// TestKnown holds that recycling is on with the torch of each stand because its text
// is in the list, and not by a trial. That of Debian sid changes: a newer one fails with
// RSSWARDEN_ENDURANCE alone, and has a trial in the other tests.
func TestKnown(t *testing.T) {
	eachTorch(t, func(t *testing.T, s *stand) {
		_, dir := hooked(t)
		cmd := s.command(t, python, "-c", fmt.Sprintf(importHook, dir)+`
import torch.utils.data.dataloader as module
got = fingerprint.read(module, module._MultiProcessingDataLoaderIter.__init__)
print(got.why, fingerprint.is_known(got.digest), got.digest, "of torch", module.torch.__version__)
`)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%s", out)
		if s == newest && endurance(0, 1) == 0 {
			return
		}
		if !strings.HasPrefix(string(out), "None True ") {
			t.Errorf("the digest of its text is not in known.py: %s", out)
		}
	})
}

// TestArguments: how a worker is started is found in the text of the constructor, and
// what is not understood is named.
func TestArguments(t *testing.T) {
	_, dir := hooked(t)
	const loop = "def _worker_loop(dataset, index_queue, base_seed, worker_id): pass\n"
	const constructor = `
class Iterator:
    def __init__(self, loader):
        for i in range(2):
            queue = context.Queue()
            w = context.Process(target=worker._worker_loop, args=(self._dataset, queue, self._base_seed, i))
`
	const understood = "dataset=is._dataset index_queue=own. base_seed=own. worker_id=own."
	for _, test := range []struct {
		name, old, new string
		want           string
	}{
		{"torch 1.13 to 2.13", "", "", understood},
		{"a holder, as in torch 2.14", "self._dataset,", "[self._dataset],", strings.Replace(understood, "is.", "in.", 1)},
		{"a holder by a local name", "            w = context.Process(target=worker._worker_loop, args=(self._dataset,",
			"            holder = [self._dataset]\n            w = context.Process(target=worker._worker_loop, args=(holder,",
			strings.Replace(understood, "is.", "in.", 1)},
		{"another attribute", "self._dataset,", "self._data,", strings.Replace(understood, "_dataset ", "_data ", 1)},
		{"keywords in another order", "target=worker._worker_loop, args=(self._dataset, queue, self._base_seed, i)",
			"args=(self._dataset, queue, self._base_seed, i), target=_worker_loop", understood},
		{"a call", "self._dataset,", "self._dataset.shard(i),", "_worker_loop is given self._dataset.shard(i) as dataset"},
		{"an attribute of an attribute", "self._dataset,", "self._dataset.inner,", "_worker_loop is given self._dataset.inner as dataset"},
		{"two in a list", "self._dataset,", "[self._dataset, 1],", "_worker_loop is given [self._dataset, 1] as dataset"},
		{"a local name that is set twice", "            w = context.Process(target=worker._worker_loop, args=(self._dataset,",
			"            d = self._dataset\n            d = d.copy()\n            w = context.Process(target=worker._worker_loop, args=(d,",
			"_worker_loop is given d as dataset"},
		{"a name of the loop", "args=(self._dataset,", "args=(i,", "_worker_loop is given i as dataset"},
		{"one argument more", "self._base_seed, i)", "self._base_seed, i, 1)", "_worker_loop takes 4 arguments, and is given 5"},
		{"a keyword more", "self._base_seed, i))", "self._base_seed, i), kwargs=more)", "torch starts its workers by context.Process(target="},
		{"a thread", "context.Process", "threading.Thread", "torch starts its workers by threading.Thread("},
		{"arguments by name", "args=(self._dataset, queue, self._base_seed, i)", "args=arguments", "torch starts its workers by context.Process("},
		{"started in two places", "            w =", "            if i: context.Process(target=worker._worker_loop, args=())\n            w =",
			"torch starts _worker_loop in 2 places"},
		{"started elsewhere", "target=worker._worker_loop", "target=run", "torch starts _worker_loop in no places"},
		{"no seed", "base_seed, worker_id)", "seed, worker_id)", "_worker_loop has no parameter base_seed"},
		{"keyword parameters", "(dataset, index_queue", "(dataset, *, index_queue", "_worker_loop takes more than plain parameters"},
		{"another constructor", "def __init__", "def start", "torch has no Iterator.__init__"},
		{"no loop", "def _worker_loop", "def loop", "torch has no _worker_loop"},
		{"no Python", "for i in", "for in", "cannot be parsed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := loop + constructor
			if test.old != "" {
				if !strings.Contains(text, test.old) {
					t.Fatalf("no %q in the text", test.old)
				}
				text = strings.Replace(text, test.old, test.new, 1)
			}
			out := runPython(t, nil, "-c", fmt.Sprintf(importHook, dir)+`
try:
    tree = fingerprint.parse(sys.argv[1], "it")
    found = fingerprint.arguments(fingerprint.function(tree, "Iterator", "__init__"), fingerprint.function(tree, "_worker_loop"))
    print(" ".join("%s=%s.%s" % (name, how, of) for name, (how, of) in found.items()))
except fingerprint.Unknown as error:
    print(error)
`, text)
			if !strings.Contains(out, test.want) {
				t.Errorf("got %swant %s", out, test.want)
			}
		})
	}
}
