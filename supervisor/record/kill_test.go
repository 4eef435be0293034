package record

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
// tells of each that was taken in more than a moment ago.
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
		fmt.Println(n)
		time.Sleep(2 * time.Millisecond)
	}
}

// TestKilledAtAnyMoment: what was taken in a second before a SIGKILL is there,
// and nothing is damaged.
func TestKilledAtAnyMoment(t *testing.T) {
	kills := 20
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		kills = 200
	}
	rnd := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
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
		began := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50*time.Millisecond + time.Duration(rnd.IntN(900))*time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		out.Close()
		lived := time.Since(began)
		found := Find(filepath.Join(dir, "records"), filepath.Join(dir, "journals"))
		if len(found) != 1 || found[0].Record == "" {
			if lived < 200*time.Millisecond {
				continue // it had not begun
			}
			t.Fatalf("kill %d after %v: found %+v", i, lived, found)
		}
		run, err := Read(context.Background(), found[0].Record, child)
		if err != nil {
			if lived < 200*time.Millisecond {
				continue
			}
			t.Fatalf("kill %d after %v: %v", i, lived, err)
		}
		if len(run.Damage) > 0 {
			t.Errorf("kill %d after %v: %v", i, lived, run.Damage)
		}
		samples, last := 0, time.Duration(0)
		for s := range run.Samples() {
			samples, last = samples+1, s.At
			if len(s.Procs) != procs || len(s.Limits) != 1 {
				t.Fatalf("kill %d: sample %d has %d processes of %d", i, samples, len(s.Procs), procs)
			}
		}
		told, _ := os.ReadFile(filepath.Join(dir, "told"))
		taken := 0
		for _, b := range told {
			if b == '\n' {
				taken++
			}
		}
		if gap := lived - last; gap > time.Second {
			t.Errorf("kill %d after %v: the last of %d samples (%d taken in) is of %v", i, lived, samples, taken, last)
		}
		if _, err := ReadJournal(found[0].Journal); found[0].Journal != "" && err != nil {
			t.Errorf("kill %d: %v", i, err)
		}
	}
}
