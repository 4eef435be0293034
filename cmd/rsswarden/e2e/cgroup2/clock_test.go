package cgroup2

import (
	"encoding/csv"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// clockSet: the clock is set an hour ahead, and then back to an hour behind where it
// was. No rung fires by it, nothing is forecast, and the record has the time that passed.
func clockSet(t *testing.T) {
	job := group(t, "job", "memory.max", "300M")
	r := start(t, job, user, "--interval", "200ms", "--at", "none", "--at", "80%:warn", "--at", "eta<10h:warn")
	began := time.Now() // with the monotonic clock
	r.eat(60 * rss.MiB)
	r.begun()
	samples := func() int { return len(r.events(event.NameSample)) }
	more := func() {
		t.Helper()
		for had, end := samples(), time.Now().Add(patience); samples() < had+4; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no more samples are taken")
			}
		}
	}
	more()
	set := 0 * time.Second
	jump := func(by time.Duration) {
		t.Helper()
		tv := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
		wardentest.NoError(t, unix.Settimeofday(&tv))
		set += by
	}
	defer func() { jump(-set) }()
	jump(time.Hour)
	more()
	jump(-2 * time.Hour)
	more()
	r.ends(0)
	lasted := time.Since(began).Seconds() + 1
	for _, l := range r.events(event.NameDecision) {
		t.Errorf("a rung fired: %s", l.text)
	}
	r.says("finished, memory fine")
	records, err := filepath.Glob(r.dir + "/records/*")
	if err != nil || len(records) != 1 {
		t.Fatalf("records %v, %v", records, err)
	}
	out, err := exec.Command(program, "report", "--csv", records[0]).Output()
	wardentest.NoError(t, err)
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) < 10 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	last := 0.0
	for _, row := range rows[1:] {
		at, err := strconv.ParseFloat(row[1], 64)
		if err != nil || at < last || at > lasted {
			t.Errorf("after %g s comes %s s, %v, of %.1f s", last, row[1], err, lasted)
			break
		}
		last = at
		if eta := row[len(row)-1]; eta != "" {
			t.Errorf("a forecast: %q", row)
			break
		}
	}
}
