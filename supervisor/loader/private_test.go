package loader

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

func needNumpy(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		t.Skipf("no numpy: %v: %s", err, out)
	}
}

// mapFile makes a file of 80 MiB whose pages are on the disk.
func mapFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a file of records") // a name with spaces
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i*7 + i>>8)
	}
	for i := range 80 {
		block[i] ^= 0xa5
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return path
}

func mappings(t *testing.T, result any, args ...string) {
	t.Helper()
	_, dir := hooked(t)
	out := runPython(t, nil, append([]string{"testdata/mappings.py", dir, mapFile(t)}, args...)...)
	if err := json.Unmarshal([]byte(out), result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestTrimMappings maps a file in all the ways and trims without and with
// --trim-private: what may be dropped is, all else stays, and every byte reads
// as before.
func TestTrimMappings(t *testing.T) {
	needNumpy(t)
	var got map[string]struct {
		Full, Trim, Private rss.Bytes
		Same                bool
		Said                []string
	}
	mappings(t, &got)
	if len(got) != 13 {
		t.Errorf("%d ways", len(got))
	}
	for way, g := range got {
		always, asked := false, false
		switch way {
		case "memmap r", "ACCESS_READ":
			always, asked = true, true
		case "pyarrow":
			asked = true
		}
		if !g.Same || len(g.Said) > 0 || g.Full < 60*rss.MiB {
			t.Errorf("%s: %+v", way, g)
		}
		for _, c := range []struct {
			left    rss.Bytes
			dropped bool
		}{{g.Trim, always}, {g.Private, asked}} {
			if c.dropped != (c.left == 0) || !c.dropped && c.left != g.Full {
				t.Errorf("%s: of %v, %v stayed after a trim, %v with private mappings", way, g.Full, g.Trim, g.Private)
			}
		}
	}
}

// TestTrimBesideThreads has a thread take mapped files away and put memory of
// its own in their places, while trims go on. Trimmed by the list alone, that
// memory loses its contents; ours looks again without letting the thread run.
func TestTrimBesideThreads(t *testing.T) {
	needNumpy(t)
	var naive, ours struct{ Lost, Turns, Trims int }
	mappings(t, &naive, "race", "30", "naive")
	if naive.Lost == 0 {
		t.Skipf("the race was not met in %d trims: nothing is shown", naive.Trims)
	}
	mappings(t, &ours, "race", fmt.Sprint(endurance(2, 60)), "ours")
	if ours.Lost != 0 || ours.Turns == 0 || ours.Trims == 0 {
		t.Errorf("%+v", ours)
	}
	t.Logf("naive: lost %d times in %d trims; ours: %+v", naive.Lost, naive.Trims, ours)
}

// TestPrivateRules holds which entries of smaps may be dropped.
func TestPrivateRules(t *testing.T) {
	const line = "7f0000000000-7f0008000000 r--p 00000000 fe:00 42                         /data/a.arrow"
	entry := func(changes ...string) string {
		return strings.NewReplacer(changes...).Replace(line + `
Size:             131072 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:               70000 kB
Pss:               70000 kB
Shared_Clean:          0 kB
Shared_Dirty:          0 kB
Private_Clean:     70000 kB
Private_Dirty:         0 kB
Referenced:        70000 kB
Anonymous:             0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
Swap:                  0 kB
SwapPss:               0 kB
Locked:                0 kB
THPeligible:    0
VmFlags: rd mr mw me sd 
`)
	}
	next := strings.NewReplacer("7f0000000000-7f0008000000", "7f0008000000-7f0010000000").Replace
	bad := entry("Anonymous:             0", "Anonymous:             4")
	for _, c := range []struct {
		name, smaps    string
		clean, written int
	}{
		{"clean", entry(), 1, 0},
		{"with read-ahead advice", entry("sd ", "rr sd "), 1, 0},
		{"between others", next(bad) + entry() + next(bad), 1, 0},
		{"anonymous", bad, 0, 1},
		{"anonymous, the next is clean", bad + next(entry()), 0, 1},
		{"dirty", entry("Private_Dirty:         0", "Private_Dirty:       120"), 0, 0},
		{"swapped", entry("Swap:                  0", "Swap:                  8"), 0, 0},
		{"was writable", entry("sd ", "ac sd "), 0, 0},
		{"locked", entry("sd ", "lo sd "), 0, 0},
		{"watched", entry("sd ", "sd um "), 0, 0},
		{"writable now", entry("rd mr", "rd wr mr"), 0, 0},
		{"another line", entry("r--p", "rw-p"), 0, 0},
		{"another file", entry("a.arrow", "a.arrow (deleted)"), 0, 0},
		{"a longer name", entry("a.arrow", "a.arrow.2"), 0, 0},
		{"no flags", entry("VmFlags: rd mr mw me sd \n", ""), 0, 0},
		{"no count of swap", entry("Swap:                  0 kB\n", ""), 0, 0},
		{"cut off", entry()[:300], 0, 0},
		{"gone", next(entry()), 0, 0},
		{"nothing", "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, dir := hooked(t)
			out := runPython(t, nil, "-c", fmt.Sprintf(`
import os, sys, types
package = types.ModuleType("_rsswarden"); package.__path__ = [os.path.join(%q, "_rsswarden")]
sys.modules["_rsswarden"] = package
from _rsswarden import private, trim
m, = trim.mappings(%q.encode() + b"\n")
assert m.start == 0x7f0000000000 and m.length == 128 << 20 and m.inode == 42 and m.path == b"/data/a.arrow"
text = bytearray(b"\n" + %q.encode())
print(int(private.clean(m)(text) is not None), int(private.written(m, text)))
`, dir, line, c.smaps))
			if want := fmt.Sprintln(c.clean, c.written); out != want {
				t.Errorf("got %s, want %s", out, want)
			}
		})
	}
}
