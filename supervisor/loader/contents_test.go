package loader

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

// TestContents has the hook look into objects of every kind: it finds the tensors
// that are there, says where it may have missed some, and runs no code of the
// program's (testdata/contents.py ends where it does).
func TestContents(t *testing.T) {
	const n = 500
	type found struct {
		Tensors, Bytes, Empty, Sent, Visited int
		More                                 bool
	}
	list := func(count int, more bool) found { return found{Tensors: count, Bytes: count * 320, More: more} }
	want := map[string]found{
		"list": list(n, false), "a list itself": list(n, false), "tuple": list(n, false), "dict": list(n, false),
		"set": list(2*n, false), "pairs": list(n, false), "named tuples": list(n, false), "ordered": list(2*n, false),
		"items": list(n, false), "records": list(n, false), "slots": list(n, false), "parameters": list(n, false),
		"module": list(n, false), "subset": list(n, false), "subset of pairs": list(n, false), "concatenated": list(2*n, false),
		"tensor dataset": list(n, false), "shared by two": {Tensors: 1, Bytes: n * 320}, "the same again": list(1, false),
		"empty": {Tensors: n, Empty: n}, "shared already": {}, "big": {Tensors: 1, Bytes: 4e6}, "numpy": {}, "innocents": {},
		"loop": list(n, false), "ring": list(n, false), "deep": list(0, true), "nested": list(0, true),
		"untouchable": list(n, false), "trapped containers": list(4*n, false), "hidden": list(0, true), "metaclass": list(n, false),
		"pickles itself": list(n, true), "reduces itself": list(0, true), "subclass": list(n, true), "sparse": list(n, true), "meta": {},
	}
	eachTorch(t, func(t *testing.T, s *stand) {
		_, dir := hooked(t)
		script, err := filepath.Abs("testdata/contents.py")
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.command(t, python, script, dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var got map[string]found
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for name, w := range want {
			g, ok := got[name]
			visited := g.Visited
			g.Visited = 0
			if !ok || g != w || visited == 0 || visited > 10*n {
				t.Errorf("%s: got %+v after %d elements, want %+v", name, g, visited, w)
			}
		}
		for _, name := range []string{"bounded ints", "bounded int pairs", "bounded int dict", "bounded many"} {
			g := got[name]
			t.Logf("%s: %+v", name, g)
			if g.Visited == 0 || g.Visited > 2e6+10 && name != "bounded int pairs" || (g.Tensors == 100) != (name == "bounded many") {
				t.Errorf("%s: %+v", name, g)
			}
		}
		// A view is sent by itself where a storage has no one object to be known by.
		g, views := got["sent"], 1
		if s == torch113 {
			views = n
		}
		if g.Sent != views+n+1 || g.Tensors != 1+n+1 {
			t.Errorf("sent: %+v", g)
		}
	})
}
