package record

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// testMeta is of a run that began just now.
func testMeta() Meta {
	at := time.Now()
	return Meta{ID: NewID(at, nil, "node", os.Getpid()), Start: at, Node: "node", Command: []string{"python", "train.py"}}
}

// look is one look at a trainer with workers that fill a limit.
func look(at time.Duration, n int, procs int) *Look {
	s := &rss.Sample{}
	var sum rss.Bytes
	for i := range procs {
		p := rss.Proc{
			ID: rss.ProcID{PID: 100 + i, Start: 1}, Comm: "pt_data_worker", Role: rss.RoleWorker,
			Anon: 200*rss.MiB + rss.Bytes(n)*4*rss.KiB, File: rss.Bytes(n*(i+1)) * 36 * rss.KiB,
		}
		p.RSS = p.Anon + p.File
		sum += p.RSS
		s.Procs = append(s.Procs, p)
	}
	return &Look{At: at, Sample: s, Limits: []event.Limit{
		{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Used: sum, Limit: 64 * rss.GiB, LimitSource: "SLURM_MEM_PER_NODE", Binding: true},
	}}
}

// writeForever records a look every few milliseconds until it is killed, and
// tells when it took in each.
func writeForever(dir string) {
	procs, _ := strconv.Atoi(os.Getenv("RECORD_TEST_PROCS"))
	m := testMeta()
	r := New(Options{
		Meta: m, AtOnce: true,
		Places: Places{Records: []string{filepath.Join(dir, "records")}, Journals: []string{filepath.Join(dir, "journals")}},
		Fault:  func(part string, err error) { fmt.Fprintln(os.Stderr, part, err) },
	})
	r.Event(event.NameStart, event.Start{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameStart}})
	for n := 0; ; n++ {
		l := look(time.Since(m.Start), n, procs)
		l.AtDecision = n%50 == 49
		r.Sample(l)
		if l.AtDecision {
			r.Event(event.NameDecision, event.Decision{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameDecision}, ID: uint64(n)})
		}
		fmt.Println(time.Now().UnixNano())
		time.Sleep(2 * time.Millisecond)
	}
}

// TestKilledAtAnyMoment: what was taken in a second before a SIGKILL is there,
// and nothing is damaged.
func TestKilledAtAnyMoment(t *testing.T) {
	kills := 10
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		kills = 200
	}
	rnd := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
	read := 0
	for i := range kills {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], dir)
		procs := 1 + rnd.IntN(64)
		cmd.Env = append(os.Environ(), "RECORD_TEST_CHILD=write", "RECORD_TEST_PROCS="+strconv.Itoa(procs))
		out, err := os.Create(filepath.Join(dir, "told"))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50*time.Millisecond + time.Duration(rnd.IntN(1900))*time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		out.Close()
		first, taken := told(t, out.Name())
		short := taken.Sub(first) < time.Second // all of it may be lost
		found := Find(filepath.Join(dir, "records"), filepath.Join(dir, "journals"))
		if len(found) != 1 || found[0].Record == "" {
			if !short {
				t.Fatalf("kill %d after %v: found %+v", i, taken.Sub(first), found)
			}
			continue
		}
		run, err := Read(context.Background(), found[0].Record, child)
		if err != nil {
			if !short {
				t.Fatalf("kill %d after %v: %v", i, taken.Sub(first), err)
			}
			continue
		}
		read++
		if len(run.Damage) > 0 {
			t.Errorf("kill %d after %v: %v", i, taken.Sub(first), run.Damage)
		}
		last := run.Meta.Start
		for s := range run.Samples() {
			last = run.Wall(s.At)
			if len(s.Procs) != procs || len(s.Limits) != 1 {
				t.Fatalf("kill %d: a sample has %d processes of %d", i, len(s.Procs), procs)
			}
		}
		if lost := taken.Sub(last); lost > time.Second {
			t.Errorf("kill %d after %v: the last %v are not there", i, taken.Sub(first), lost)
		}
		if _, err := ReadJournal(found[0].Journal); found[0].Journal != "" && err != nil {
			t.Errorf("kill %d: %v", i, err)
		}
	}
	t.Logf("%d kills, %d records read", kills, read)
	if read < kills*3/4 {
		t.Errorf("only %d of %d records were begun", read, kills)
	}
}

// told returns when the first and the last look were taken in, by what the writer
// printed.
func told(t *testing.T, name string) (first, last time.Time) {
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		n, err := strconv.ParseInt(strings.TrimSuffix(l, "\n"), 10, 64)
		if err != nil || !strings.HasSuffix(l, "\n") {
			continue
		}
		if last = time.Unix(0, n); first.IsZero() {
			first = last
		}
	}
	return first, last
}
