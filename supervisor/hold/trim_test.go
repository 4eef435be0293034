package hold

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// tracer is what a holder traces with outside of these tests too.
func tracer() func(TrimRequest) TrimAnswer {
	t := trim.NewTracer()
	return func(r TrimRequest) TrimAnswer {
		a := t.Do(trim.Piece{ID: rss.ProcID{PID: r.PID, Start: r.Start}, Lo: r.Lo, Hi: r.Hi, Offset: r.Offset, Dev: r.Dev, Inode: r.Inode})
		return TrimAnswer{Refusal: uint8(a.Refusal), Advised: uint64(a.Advised), Stop: a.Stop, Threads: a.Threads}
	}
}

// trimAll has the command's mapping of the file "mapped" trimmed over and over.
func trimAll(l *Link, answers <-chan TrimAnswer, say func(string, ...any)) {
	b := l.Begin()
	n := map[uint8]int{}
	for id := uint64(1); ; id++ {
		r, ok := mappedFile(b.PID)
		if !ok {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		r.ID, r.Start = id, b.Start
		if l.Trim(r) != nil {
			return
		}
		select {
		case a := <-answers:
			if a.ID != id {
				say("answer %d to request %d", a.ID, id)
			}
			if n[a.Refusal]++; n[a.Refusal] == 1 {
				say("trim refusal %d", a.Refusal)
			}
		case <-time.After(5 * time.Second):
			say("no answer")
			return
		}
	}
}

func mappedFile(pid int) (r TrimRequest, ok bool) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return r, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var flags, name string
		var major, minor uint32
		n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %x:%x %d %s", &r.Lo, &r.Hi, &flags, &r.Offset, &major, &minor, &r.Inode, &name)
		if n == 8 && flags == "r--s" && strings.HasSuffix(name, "/mapped") {
			r.PID, r.Dev = pid, unix.Mkdev(major, minor)
			return r, true
		}
	}
	return r, false
}

// TestTrimmedCommandEnds: the command is the holder's own child, so its stops
// under ptrace are offered to the waits for its end. It ends at random moments
// of trims, in all ways; the status is right each time.
func TestTrimmedCommandEnds(t *testing.T) {
	times := 100
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		times = 400
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "mapped")
	wardentest.NoError(t, os.WriteFile(data, make([]byte, 8<<20), 0o600))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	each(t, times, func(i int) {
		mu.Lock()
		after := time.Duration(random.IntN(20000)) * time.Microsecond
		how := i % 4
		mu.Unlock()
		log := filepath.Join(dir, "log"+strconv.Itoa(i))
		ready := filepath.Join(dir, "ready"+strconv.Itoa(i))
		cmd := run(t, held(config{Watch: "trim", Trim: true, Log: log}, probe, "mapped", data, ready)...)
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		var pid int
		until(t, "the command is there", func() bool {
			pid, _ = strconv.Atoi(strings.TrimSpace(wardentest.Read(ready)))
			return pid != 0 && strings.Contains(wardentest.Read(log), "trim refusal 0\n")
		})
		sig := []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV, unix.SIGUSR1}[how]
		time.Sleep(after)
		if err := unix.Kill(pid, sig); err != nil {
			t.Errorf("kill: %v", err)
		}
		s := waitStatus(t, cmd)
		exits := sig == unix.SIGUSR1 // its handler does
		if exits && (!s.Exited() || s.ExitStatus() != 42) || !exits && (!s.Signaled() || s.Signal() != sig) {
			t.Errorf("%v after %v: status %#x", sig, after, s)
		}
		if text := wardentest.Read(log); strings.Contains(text, "answer") {
			t.Errorf("%s", text)
		}
	})
}
