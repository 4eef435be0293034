package trim

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tally is what came of many trims.
type tally struct {
	answers map[Refusal]int
	stops   []time.Duration // of those that were done
}

// newTracer makes a tracer that ends with the test.
func newTracer(t *testing.T) *Tracer {
	tr := NewTracer()
	t.Cleanup(tr.Close)
	return tr
}

// do trims one piece, and fails the test where that takes for ever or is
// refused for a reason that no process of the stand gives.
func (y *tally) do(t *testing.T, tr *Tracer, p Piece) Answer {
	t.Helper()
	began := time.Now()
	a := tr.Do(p)
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("a trim took %v (answer %+v)", d, a)
	}
	y.add(t, a)
	return a
}

func (y *tally) add(t *testing.T, a Answer) {
	t.Helper()
	if y.answers == nil {
		y.answers = map[Refusal]int{}
	}
	y.answers[a.Refusal]++
	switch a.Refusal {
	case None:
		y.stops = append(y.stops, a.Stop)
		if a.Advised == 0 || a.Stop <= 0 || a.Attached > a.Stop || a.Threads == 0 {
			t.Errorf("done, but: %+v", a)
		}
	case Failed, Broken, Unsupported, Device, Trainer, Ours, Not64Bit, Seccomp, Undumpable, OtherUser:
		t.Errorf("refused: %s (%+v)", a.Refusal.Reason(), a)
	}
}

func (y *tally) done() int { return y.answers[None] }

// String gives the numbers of all answers, and how long the process stood.
func (y *tally) String() string {
	var words []string
	for _, r := range slices.Sorted(maps.Keys(y.answers)) {
		words = append(words, fmt.Sprintf("%s %d", r.Reason(), y.answers[r]))
	}
	if n := len(y.stops); n > 0 {
		s := slices.Sorted(slices.Values(y.stops))
		words = append(words, fmt.Sprintf("stop median %v, longest %v", s[n/2], s[n-1]))
	}
	return strings.Join(words, ", ")
}

// states gives state and tracer of each thread of a process.
func states(pid int) string {
	var words []string
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		state, tracer := taskState(task)
		words = append(words, fmt.Sprintf("%s:%c/%d", filepath.Base(task), state, tracer))
	}
	return strings.Join(words, " ")
}

func taskState(task string) (state byte, tracer int) {
	b, err := os.ReadFile(filepath.Join(task, "status"))
	if err != nil {
		return 'X', 0
	}
	_, v, _ := strings.Cut(string(b), "\nState:\t")
	_, w, _ := strings.Cut(string(b), "\nTracerPid:\t")
	w, _, _ = strings.Cut(w, "\n")
	tracer, _ = strconv.Atoi(w)
	return v[0], tracer
}

// letGo waits until nobody traces a thread of the process, and each is in one
// of the states wanted.
func letGo(t *testing.T, pid int, wanted string) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		bad := 0
		for _, task := range tasks {
			if state, tracer := taskState(task); tracer != 0 || !strings.ContainsRune(wanted, rune(state)) {
				bad++
			}
		}
		if len(tasks) > 0 && bad == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("threads are not all in %q and untraced: %s", wanted, states(pid))
		}
		time.Sleep(time.Millisecond)
	}
}

// callOf is the number of the system call that a thread sleeps in, -1 where it
// runs (proc_pid_syscall(5)).
func callOf(pid, tid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
	if err != nil {
		return -1
	}
	word, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.Atoi(word)
	if err != nil {
		return -1
	}
	return n
}

// statusLine is what /proc/PID/status says of something.
func statusLine(t *testing.T, pid int, key string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, v, found := strings.Cut(string(b), "\n"+key+":")
	if !found {
		t.Fatalf("no %s in %s", key, b)
	}
	v, _, _ = strings.Cut(v, "\n")
	return strings.TrimSpace(v)
}

// rssFile is the RssFile of a process, in bytes.
func rssFile(t *testing.T, pid int) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(statusLine(t, pid, "RssFile"), " kB"))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
