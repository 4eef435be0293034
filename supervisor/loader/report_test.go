package loader

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestParseLine(t *testing.T) {
	l, err := parseLine([]byte(`{"n":1,"id":7,"k":0,"worker":11,"mode":"swap","new":12,"exit":-9,"before":2097152,"after":1048576,` +
		`"pause_ms":7.5,"t":1000.25,"pid":10,"what":"recycled","later":"ignored"}`))
	must(t, err)
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
	must(t, err)
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
