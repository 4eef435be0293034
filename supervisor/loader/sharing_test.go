package loader

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// ran is what testdata/sharing.py prints.
type ran struct {
	PID     int     `json:"pid"`
	Default string  `json:"default"`
	Error   string  `json:"error"`
	Records int     `json:"records"`
	Wrong   int     `json:"wrong"`
	Maps    int     `json:"maps"`
	FDs     int     `json:"fds"`
	Soft    int     `json:"soft"`
	T       float64 `json:"t"`
}

// share runs testdata/sharing.py under the hook and returns what it printed, and
// what the hook said of it before it failed or took its first batch.
func share(t *testing.T, s *stand, nofile int, args string) (ran, []Said) {
	t.Helper()
	s.Need(t)
	p, err := Prepare(Options{Env: atHome(t, append(os.Environ(), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1",
		"STARTED="+filepath.Join(t.TempDir(), "started")))})
	must(t, err)
	t.Cleanup(func() { Remove(p.Dir) })
	ctl, err := Open(p.Dir)
	must(t, err)
	defer ctl.Close()
	if nofile > 0 {
		must(t, ctl.SetNoFile(nofile))
	}
	cmd := s.Command(t, python, append([]string{script(t, "sharing.py")}, strings.Fields(args)...)...)
	var out, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = p.Env, &out, &stderr
	runErr := cmd.Run()
	var r ran
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v, %v: %s%s", runErr, err, out.Bytes(), stderr.Bytes())
	}
	var said []Said
	for _, one := range ctl.Poll(true) {
		switch one.What {
		case event.LoaderPickling, event.LoaderRaised:
			if one.PID != r.PID || one.Sharing == nil || one.Time.After(time.Unix(0, int64(r.T*1e9))) {
				t.Errorf("%+v of %+v", one, r)
			}
			said = append(said, one)
		case event.LoaderOff:
			t.Errorf("the hook is off: %s", one.Reason)
		}
	}
	if n := ctl.Malformed(); n > 0 {
		t.Errorf("%d malformed lines", n)
	}
	return r, said
}

// about says whether got is within a few percent, or a few, of want.
func about(got, want int) bool {
	return math.Abs(float64(got-want)) <= max(12, 0.03*float64(want))
}

func maxMaps(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		t.Skip(err)
	}
	var n int
	if _, err := fmt.Sscan(string(data), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSharing: reports about data sets near a limit, compared with what the process
// reached.
func TestSharing(t *testing.T) {
	t.Parallel()
	limit := maxMaps(t)
	for i, c := range []struct {
		name, args string
		nofile     int
		said       string // "pickling", "raised" or both
		fails      string
		often      bool
	}{
		{"spawn, half of the descriptors", "--method spawn --nofile 1000 --count 600 --workers 2", 0, "pickling", "", true},
		{"spawn, too few descriptors", "--method spawn --nofile 1000 --count 1200", 0, "pickling", "Too many open files", true},
		{"spawn, too few descriptors, in a child", "--child forkserver --method spawn --nofile 1000 --count 1200", 0, "pickling", "Too many open files", false},
		{"spawn, raised", "--child spawn --nofile 1000 --count 1200 --workers 2", 4096, "raised", "", true},
		{"spawn, raised for many", "--child spawn --nofile 1024 --count 15000", 65536, "raised", "", false},
		{"spawn, raised to the hard limit", "--method spawn --nofile 1000 --hard 1100 --count 1200", 4096, "raised pickling", "Too many open files", true},
		{"spawn, raised to what was allowed", "--method spawn --nofile 1000 --count 1200", 1050, "raised pickling", "Too many open files", false},
		{"spawn, nothing to raise", "--method spawn --nofile 1000 --count 400", 4096, "", "", false},
		{"forkserver, as many as go in one message", "--method forkserver --nofile 1000 --count 245 --workers 2", 4096, "", "", true},
		{"forkserver, one more", "--method forkserver --nofile 1000 --count 246", 4096, "pickling", "OSError", true},
		{"forkserver, too many", "--child forkserver --nofile 1000 --count 400", 0, "pickling", "too many fds", false},
		{"fork", "--method fork --nofile 1000 --count 1200", 4096, "", "", true},
		{"file_system, few descriptors", "--method spawn --strategy file_system --nofile 1000 --count 1200", 4096, "", "", false},
		{"spawn, file_system, half of the mappings", "--method spawn --strategy file_system --count " + fmt.Sprint(limit/2), 0, "pickling", "", true},
		{"numpy", "--method spawn --nofile 1000 --shape numpy --count 5000", 4096, "", "", false},
		{"integers", "--method spawn --nofile 1000 --shape ints --count 2000", 4096, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range stands {
				if !(c.often && s.Turn(i, 16)) && wardentest.Few(1, 0) == 0 {
					continue
				}
				t.Run(s.Name, func(t *testing.T) {
					if limit > 1<<17 && strings.Contains(c.args, "file_system") {
						t.Skipf("vm.max_map_count is %d here", limit)
					}
					r, said := share(t, s, c.nofile, c.args)
					var what []string
					for _, one := range said {
						what = append(what, string(one.What))
						t.Logf("%s %+v", one.What, *one.Sharing)
					}
					t.Logf("reached %+v", r)
					if strings.Join(what, " ") != c.said {
						t.Errorf("said %q", what)
					}
					if (r.Error != "") != (c.fails != "") || !strings.Contains(r.Error, c.fails) || r.Wrong != 0 {
						t.Errorf("%+v", r)
					}
					for _, one := range said {
						g := one.Sharing
						switch {
						case g.More:
							t.Errorf("the walk was cut short: %+v", *g)
						case c.fails == "" && !(about(g.Maps, r.Maps) && about(g.FDs, r.FDs)):
							t.Errorf("said %+v, reached %+v", *g, r)
						case c.fails == "Too many open files" && !(g.FDs > g.MaxFDs && about(r.FDs, g.MaxFDs)):
							t.Errorf("said %+v, reached %+v", *g, r)
						case g.Method == "forkserver" && (g.Sent <= g.MaxSent || g.Sent != g.Tensors+8):
							t.Errorf("said %+v", *g)
						case one.What == event.LoaderRaised && (g.Before > 1024 || r.Soft != g.MaxFDs || g.MaxFDs > c.nofile || g.MaxFDs > g.HardFDs):
							t.Errorf("said %+v, is %d", *g, r.Soft)
						}
					}
					if !strings.Contains(c.said, "raised") && r.Soft != 1000 && strings.Contains(c.args, "--nofile") {
						t.Errorf("the soft limit is %d", r.Soft)
					}
				})
			}
		})
	}
}

// TestContents has the hook look into objects of every kind: it finds the tensors
// that are there, says where it may have missed some, and runs no code of the
// program's (testdata/contents.py ends where it does).
func TestContents(t *testing.T) {
	t.Parallel()
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
	torchtest.Each(t, func(t *testing.T, s *stand) {
		_, dir := hooked(t)
		out := s.Run(t, nil, script(t, "contents.py"), dir)
		var got map[string]found
		if err := json.Unmarshal([]byte(out), &got); err != nil {
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
