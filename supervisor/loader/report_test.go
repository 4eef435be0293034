package loader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
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
	wardentest.NoError(t, err)
	t.Cleanup(func() { Remove(p.Dir) })
	ctl, err := Open(p.Dir)
	wardentest.NoError(t, err)
	defer ctl.Close()
	if nofile > 0 {
		wardentest.NoError(t, ctl.SetForAll(nofile, false))
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

// copied runs testdata/copies.py until all its workers have told what is their own, or,
// where they are forked, have all been there, and returns their loader.
func copied(t *testing.T, s *stand, args string) (l Loader) {
	t.Helper()
	tr := train(t, trainOptions{on: s, script: "copies.py", args: args})
	tr.until("the workers to tell", func() bool {
		for _, one := range tr.ctl.Trainers() {
			for _, d := range one.Loaders {
				if l = d; d.Unforked == nil || len(d.Unforked.Own) == d.NumWorkers {
					return true
				}
			}
		}
		return false
	})
	tr.finish()
	tr.notOff()
	return l
}

func TestParseLine(t *testing.T) {
	l, err := parseLine([]byte(`{"n":1,"id":7,"k":0,"worker":11,"mode":"swap","new":12,"exit":-9,"before":2097152,"after":1048576,` +
		`"pause_ms":7.5,"t":1000.25,"pid":10,"what":"recycled","later":"ignored"}`))
	wardentest.NoError(t, err)
	s := l.said(rss.ProcID{PID: 10, Start: 5})
	if s.What != event.LoaderRecycled || s.Request != 7 || !s.Last || s.PID != 10 || s.Worker != 11 || s.New != 12 ||
		s.Exit != -9 || s.Mode != event.Swap || s.Freed != rss.MiB || s.Paused != 0.0075 || !s.Time.Equal(time.Unix(1000, 250e6)) {
		t.Errorf("%+v", s)
	}
	l, err = parseLine([]byte(`{"t":1e3,"pid":11,"what":"grown","worker":11,"count":16,"before":1048576,"after":2097152}`))
	if s := l.said(rss.ProcID{PID: 10, Start: 5}); err != nil || s.What != Grown || s.Worker != 11 || s.Batches != 16 || s.Half != rss.MiB ||
		s.Own != 2*rss.MiB || s.Count != 0 || s.After != 0 || s.Last {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{
		``, `{}`, `[]`, `null`, `{"what":"iter"}`, `{"what":"melted","pid":1}`, `{"what":"iter","pid":-1}`,
		`{"what":"iter","pid":4294967296}`, `{"what":"iter","pid":1,"workers":[1,-2]}`, `{"what":"recycled","pid":1,"before":-1}`,
		`{"what":"recycled","pid":1,"pause_ms":-1}`, `{"what":"recycled","pid":1,"pause_ms":1e300}`, `{"what":"iter","pid":1,"k":70000}`,
		`{"what":"iter","pid":1,"t":1e200}`, `{"what":"iter","pid":1,"n":-1}`, `{"what":"iter","pid":1}x`,
		`{"what":"iter","pid":1,"workers":[` + strings.Repeat("1,", maxWorkers) + `1]}`,
		`{"what":"pickling","pid":1}`, `{"what":"raised","pid":1,"sharing":null}`, `{"what":"pickling","pid":1,"sharing":[]}`,
		`{"what":"pickling","pid":1,"sharing":{"tensors":-1}}`, `{"what":"pickling","pid":1,"sharing":{"maps_needed":1e10}}`,
		`{"what":"raised","pid":1,"sharing":{"workers":70000}}`, `{"what":"raised","pid":1,"sharing":{"tensor_bytes":-1}}`,
		`{"what":"iter","pid":1,"why":"` + strings.Repeat("a", maxLine) + `"}`,
	} {
		if l, err := parseLine([]byte(bad)); !errors.Is(err, errMalformed) {
			t.Errorf("%.80s: got %+v, %v", bad, l, err)
		}
	}
}

func TestParseSharing(t *testing.T) {
	const numbers = `"sharing":{"start_method":"spawn","strategy":"file_descriptor","workers":2,"tensors":1200,"tensor_bytes":384000,"more":true,` +
		`"maps_needed":2933,"maps_limit":65530,"fds_needed":1224,"fds_limit":1480,"fds_hard_limit":20000,"fds_limit_before":1000}`
	l, err := parseLine([]byte(`{"t":1e3,"pid":10,"what":"raised",` + numbers + `}`))
	wardentest.NoError(t, err)
	want := event.Sharing{Method: "spawn", Strategy: "file_descriptor", Workers: 2, Tensors: 1200, Bytes: 384000, More: true,
		Maps: 2933, MaxMaps: 65530, FDs: 1224, MaxFDs: 1480, HardFDs: 20000, Before: 1000}
	if s := l.said(rss.ProcID{PID: 10, Start: 5}); s.What != event.LoaderRaised || s.Sharing == nil || *s.Sharing != want || s.Last {
		t.Errorf("%+v", s)
	}
	if l, err := parseLine([]byte(`{"pid":10,"what":"off",` + numbers + `}`)); err != nil || l.said(rss.ProcID{}).Sharing != nil {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestParseHello(t *testing.T) {
	h, err := parseHello([]byte(`{"v":1,"pid":10,"start":5,"ppid":1,"boot_id":"b","pid_ns":"pid:[1]","torch":"1.13.0","python":"3.11.2",` +
		`"can_recycle":true,"why":""}`))
	if err != nil || h.PID != 10 || h.Start != 5 || !h.CanRecycle || h.Torch != "1.13.0" {
		t.Errorf("%+v, %v", h, err)
	}
	for _, bad := range []string{``, `{}`, `7`, `{"v":2,"pid":10,"start":5}`, `{"v":1,"pid":0,"start":5}`, `{"v":1,"pid":10}`,
		`{"v":1,"pid":9999999999,"start":5}`} {
		if h, err := parseHello([]byte(bad)); !errors.Is(err, errMalformed) {
			t.Errorf("%s: got %+v, %v", bad, h, err)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"n":1,"workers":[11,12],"num_workers":2,"t":1000.25,"pid":10,"what":"iter","kind":"map"}`))
	f.Add([]byte(`{"n":1,"id":7,"worker":11,"new":12,"t":1e3,"pid":10,"what":"swapped"}`))
	f.Add([]byte(`{"n":1,"id":7,"worker":11,"new":13,"t":1e3,"pid":10,"what":"recycled","before":18446744073709551615}`))
	f.Add([]byte(`{"t":1e3,"pid":10,"what":"pickling","sharing":{"start_method":"spawn","tensors":7,"tensor_bytes":1,"maps_limit":65530}}`))
	f.Add([]byte(`{"t":1e3,"pid":10,"what":"off","why":"\u0000\ud800"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parseLine(data)
		if err != nil {
			return
		}
		if s := l.Sharing; s != nil && (s.Tensors < 0 || s.Workers > maxWorkers || len(s.Method) > maxText || len(s.Strategy) > maxText) {
			t.Errorf("%+v", s)
		}
		if l.PID <= 0 || len(l.Workers) > maxWorkers || len(l.Why) > maxText {
			t.Errorf("%+v", l)
		}
		tr := &trainer{loaders: map[int]*Loader{1: {N: 1, Workers: []int{11, 12}}}}
		for range 2 {
			tr.apply(&l)
			tr.living()
			tr.trimmable()
			tr.collectable()
		}
		l.said(rss.ProcID{PID: 1, Start: 1})
	})
}

func FuzzParseHello(f *testing.F) {
	f.Add([]byte(`{"v":1,"pid":10,"start":5,"ppid":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, err := parseHello(data); err == nil && (h.PID <= 0 || h.Start == 0) {
			t.Errorf("%+v", h)
		}
	})
}

// FuzzTail cuts data into pieces anywhere: the lines are those of the whole.
func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), 2)
	f.Add([]byte(strings.Repeat("x", maxLine+5)+"\nok\n"), 1000)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		if piece <= 0 {
			return
		}
		var got []string
		var tl tail
		for rest := data; len(rest) > 0; {
			n := min(piece, len(rest))
			lines, _ := tl.split(rest[:n])
			for _, l := range lines {
				got = append(got, string(l))
			}
			rest = rest[n:]
			if len(tl.rest) > maxLine {
				t.Fatalf("%d bytes kept", len(tl.rest))
			}
		}
		var want []string
		whole := strings.Split(string(data), "\n")
		for _, l := range whole[:len(whole)-1] {
			if l != "" && len(l) <= maxLine {
				want = append(want, l)
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") || len(got) != len(want) {
			t.Errorf("got %d lines, want %d", len(got), len(want))
		}
	})
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
		{"spawn, half of the descriptors", "--method spawn --nofile 1000 --count 600 --workers 2", 0, "pickling", "", false},
		{"spawn, too few descriptors", "--method spawn --nofile 1000 --count 1200", 0, "pickling", "Too many open files", false},
		{"spawn, too few descriptors, in a child", "--child forkserver --method spawn --nofile 1000 --count 1200", 0, "pickling", "Too many open files", false},
		{"spawn, raised", "--child spawn --nofile 1000 --count 1200 --workers 2", 4096, "raised", "", true},
		{"spawn, raised for many", "--child spawn --nofile 1024 --count 15000", 65536, "raised", "", false},
		{"spawn, raised to the hard limit", "--method spawn --nofile 1000 --hard 1100 --count 1200", 4096, "raised pickling", "Too many open files", true},
		{"spawn, raised to what was allowed", "--method spawn --nofile 1000 --count 1200", 1050, "raised pickling", "Too many open files", false},
		{"spawn, nothing to raise", "--method spawn --nofile 1000 --count 400", 4096, "", "", false},
		{"forkserver, as many as go in one message", "--method forkserver --nofile 1000 --count 245 --workers 2", 4096, "", "", false},
		{"forkserver, one more", "--method forkserver --nofile 1000 --count 246", 4096, "pickling", "OSError", true},
		{"forkserver, too many", "--child forkserver --nofile 1000 --count 400", 0, "pickling", "too many fds", false},
		{"fork", "--method fork --nofile 1000 --count 1200", 4096, "", "", false},
		{"file_system, few descriptors", "--method spawn --strategy file_system --nofile 1000 --count 1200", 4096, "", "", false},
		{"spawn, file_system, half of the mappings", "--method spawn --strategy file_system --count " + fmt.Sprint(limit/2), 0, "pickling", "", false},
		{"numpy", "--method spawn --nofile 1000 --shape numpy --count 5000", 4096, "", "", false},
		{"integers", "--method spawn --nofile 1000 --shape ints --count 2000", 4096, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range stands {
				if !(c.often && s.Turn(i)) && wardentest.Few(1, 0) == 0 {
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
	torchtest.On(t, newest, func(t *testing.T, s *stand) {
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

// TestUnforked has workers of each start method tell what they cost.
func TestUnforked(t *testing.T) {
	t.Parallel()
	const mib = 100
	for _, c := range []struct {
		name, args string
		start, by  string // by is empty where workers are forked
		sent, own  bool   // the data set was pickled; each worker has it in private memory
		often      bool
	}{
		{"default", "", "fork", "", false, false, false},
		{"fork", "--context fork", "fork", "", false, false, false},
		{"spawn", "--context spawn", "spawn", "multiprocessing_context", true, true, true},
		{"forkserver for the program", "--set forkserver", "forkserver", "set_start_method", true, true, false},
		{"in a child of spawn", "--child spawn", "spawn", "parent", true, true, false},
		{"list", "--set spawn --shape list", "spawn", "set_start_method", true, true, false},
		{"tensor: in shared memory", "--context spawn --shape tensor", "spawn", "multiprocessing_context", false, false, false},
		{"opened in the worker", "--context spawn --shape opened", "spawn", "multiprocessing_context", false, true, false},
		{"one worker", "--context forkserver --workers 1", "forkserver", "multiprocessing_context", true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i, s := range []*stand{torch113, torch26} {
				if wardentest.Few(1, 0) == 0 && (!c.often || (i == 1) != (c.start == "forkserver")) {
					continue // with RSSWARDEN_ENDURANCE
				}
				t.Run(s.Name, func(t *testing.T) {
					l := copied(t, s, c.args)
					u := l.Unforked
					if l.Start != c.start || (u != nil) != (c.by != "") {
						t.Fatalf("%+v", l)
					}
					if u == nil {
						return
					}
					t.Logf("%+v", *u)
					if u.By != c.by || u.Took <= 0 && c.sent || u.Took > 5*time.Minute || u.CUDA || u.Registered != "" {
						t.Errorf("%+v", *u)
					}
					if got := u.Sent >= mib<<20*9/10 && u.Sent < mib<<20*3/2; got != c.sent || u.Sent < 0 {
						t.Errorf("%d bytes were sent to each", u.Sent)
					}
					for _, own := range u.Own {
						// Beside the data that is what Python and torch write until the first batch.
						if least := rss.Bytes(mib) * rss.MiB; c.own != (own >= least) || own > least+64*rss.MiB {
							t.Errorf("a worker has %v of its own", own)
						}
					}
				})
			}
		})
	}
}

// TestGrown: each worker says what it has after 6 batches, and each time their number
// has doubled; a trainer that loads for itself says nothing.
func TestGrown(t *testing.T) {
	t.Parallel()
	torchtest.On(t, torch26, func(t *testing.T, s *stand) {
		// 128 batches an epoch, 64 of them each worker's; the epochs' workers are others.
		tr := train(t, trainOptions{on: s, args: "--loader plain --workers 2 --part 2048 --batch 16 --epochs 2 --step 0", ends: true})
		tr.right()
		batches := map[int][]int{}
		for _, s := range tr.heard(Grown, 0) {
			batches[s.Worker] = append(batches[s.Worker], s.Batches)
			if s.PID != s.Worker {
				t.Errorf("%+v: a worker tells of itself", s)
			}
		}
		if len(batches) != 4 {
			t.Errorf("%d workers told, want those of two epochs: %v", len(batches), batches)
		}
		for pid, got := range batches {
			// After the last batch nothing is asked for.
			if !slices.Equal(got, []int{6, 12, 24, 48}) {
				t.Errorf("worker %d told after %v batches", pid, got)
			}
		}
		alone := train(t, trainOptions{on: s, args: "--workers 0 --part 512 --epochs 1 --step 0", ends: true})
		if alone.finish(); len(alone.heard(Grown, 0)) > 0 {
			t.Error("a trainer that loads for itself told")
		}
	})
}
