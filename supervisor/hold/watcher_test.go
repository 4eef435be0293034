package hold

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// However the watcher ends, the command's status is its own.
func TestWatcherFails(t *testing.T) {
	for _, watch := range []string{"good", "kill", "stop", "panic", "bus", "leave", "hang"} {
		t.Run(watch, func(t *testing.T) {
			t.Parallel()
			starts := 1
			if watch == "kill" || watch == "panic" || watch == "bus" {
				starts = 2 // at least
			}
			log := filepath.Join(t.TempDir(), "log")
			cmd := run(t, held(config{Watch: watch, Log: log, Flush: 300 * time.Millisecond}, "sh", "-c",
				fmt.Sprintf(`until [ "$(grep -cs begin %s)" -ge %d ]; do sleep 0.05; done; sleep 0.3; exit 43`, log, starts))...)
			cmd.Stderr = nil
			if s := runStatus(t, cmd); s.ExitStatus() != 43 {
				t.Errorf("got %v, want 43", s)
			}
			var watcher int
			if fmt.Sscanf(awaitLine(t, log, "begin"), "begin %d", &watcher); watch == "good" && unix.Kill(watcher, 0) != unix.ESRCH {
				t.Errorf("the watcher %d is left behind", watcher)
			}
			if n := strings.Count(wardentest.Read(log), "begin"); n < starts || starts == 1 && n > 1 {
				t.Errorf("started %d times, want %d", n, starts)
			}
			if watch == "good" && !strings.Contains(wardentest.Read(log), "exit code 43 signal 0") {
				t.Errorf("the watcher was not told: %s", wardentest.Read(log))
			}
		})
	}
}

// Three times at most, the last one told so.
func TestWatcherRestarts(t *testing.T) {
	t.Parallel()
	k := startCounted(t, config{Watch: "kill"})
	awaitLine(t, k.log, "begin")
	until(t, "the last watcher", func() bool { return strings.Contains(wardentest.Read(k.log), "attempt 4 last true") })
	for i := 1; i <= 3; i++ {
		if !strings.Contains(wardentest.Read(k.log), fmt.Sprintf("attempt %d last false", i)) {
			t.Errorf("no attempt %d in %s", i, wardentest.Read(k.log))
		}
	}
	until(t, "no child but the command", func() bool { return len(wardentest.Children(k.holder)) == 1 })
	// The fork that rehearsed its start was to be taken first where memory runs out; it is not.
	for _, pid := range []int{k.holder, k.command} {
		if got, want := wardentest.Read(fmt.Sprintf("/proc/%d/oom_score_adj", pid)), wardentest.Read("/proc/self/oom_score_adj"); got != want {
			t.Errorf("oom_score_adj of %d is %q, want %q", pid, got, want)
		}
	}
	kill(t, k.holder, 10)
	until(t, "a signal without a watcher", func() bool { return k.count(10) == 1 })
	k.end(t)
	if n := strings.Count(wardentest.Read(k.log), "begin"); n != 4 {
		t.Errorf("started %d times, want 4", n)
	}
}

func TestOverride(t *testing.T) {
	k := startCounted(t, config{Watch: "good", Override: 137})
	kill(t, k.command, 9)
	if s := waitStatus(t, k.cmd); s.ExitStatus() != 137 {
		t.Errorf("got %v, want exit status 137", s)
	}
	if !strings.Contains(wardentest.Read(k.log), "exit code 0 signal 9") {
		t.Errorf("the watcher did not get signal 9: %s", wardentest.Read(k.log))
	}
}

func TestSubreaper(t *testing.T) {
	dir := t.TempDir()
	for _, on := range []bool{false, true} {
		file, log := filepath.Join(dir, fmt.Sprint("orphans", on)), filepath.Join(dir, fmt.Sprint("log", on))
		ready := fmt.Sprintf("until grep -qs begin %s; do sleep 0.01; done", log)
		if on {
			ready = probe + " adopted $PPID"
		}
		cmd := run(t, held(config{Watch: "good", Log: log, Subreaper: on}, "sh", "-c", fmt.Sprintf("%s; exec %s orphans 50 %s", ready, probe, file))...)
		wardentest.NoError(t, cmd.Start())
		until(t, "all orphans", func() bool { return strings.Count(wardentest.Read(file), "orphan ") == 50 })
		var command int
		fmt.Sscanf(awaitLine(t, file, "ready"), "ready %d", &command)
		adopted := strings.Count(wardentest.Read(file), fmt.Sprintf("parent %d\n", cmd.Process.Pid)) - 1
		if want := map[bool]int{true: 50}[on]; adopted != want {
			t.Errorf("subreaper %v: adopted %d, want %d", on, adopted, want)
		}
		until(t, "all reaped", func() bool { return len(wardentest.Children(cmd.Process.Pid)) == 2 })
		unix.Kill(command, unix.SIGKILL)
		if s := waitStatus(t, cmd); s.Signal() != unix.SIGKILL {
			t.Errorf("got %v", s)
		}
	}
}

// The watcher ends when its holder is killed; the command runs on.
func TestHolderKilled(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	kill(t, k.holder, 9)
	waitStatus(t, k.cmd)
	awaitLine(t, k.log, "gone")
	if stateOf(t, k.command) == 0 {
		t.Error("the command died with the holder")
	}
	unix.Kill(k.command, unix.SIGKILL)
}

// A holder that is stopped beside a running or ended command is continued.
func TestUnstick(t *testing.T) {
	k := startCounted(t, config{Watch: "good"})
	kill(t, k.holder, int(unix.SIGSTOP))
	until(t, "a continued holder", func() bool { return stateOf(t, k.holder) == 'S' })
	kill(t, k.holder, int(unix.SIGSTOP))
	k.end(t)
}

// One copy is evidence once, until the watcher has said that it took it.
func TestWitnessEvidence(t *testing.T) {
	w := &witness{status: -1}
	const sig = 10
	w.use(bit(sig))
	m, any := w.request()
	if !any || !m.set.has(sig) {
		t.Fatalf("nothing to ask: %+v", m)
	}
	w.sent()
	first := m.a
	if _, any := w.request(); any {
		t.Error("asked twice")
	}
	// Another one is used before the answer to the first request comes.
	w.use(bit(sig))
	m, _ = w.request()
	w.sent()
	w.drained(bit(sig), first)
	if !w.used.has(sig) {
		t.Error("an answer to an earlier request freed the signal")
	}
	w.drained(bit(sig), m.a)
	if w.used.has(sig) {
		t.Error("the answer did not free the signal")
	}
}

// stand is a holder whose command sleeps and whose watcher is the test.
type stand struct {
	t      *testing.T
	holder *holder
	link   int // the watcher's end
	status *os.File
}

// harmless is a signal that a sleeping command and this process ignore.
const harmless = int(unix.SIGURG)

func newStand(t *testing.T) *stand {
	s := &stand{t: t}
	command, _ := rsstest.Sleeper(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	wardentest.NoError(t, err)
	unix.SetNonblock(pair[0], true)
	t.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
	if s.status, err = os.Create(filepath.Join(t.TempDir(), "status")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.status.Close() })
	s.link = pair[1]
	s.holder = &holder{
		self: os.Getppid(), pid: command.Process.Pid, pidfd: -1,
		watcher: watcher{link: pair[0], pid: os.Getpid()},
		witness: witness{status: int(s.status.Fd()), pid: os.Getpid(), buf: make([]byte, 16<<10)},
	}
	s.pending(0)
	return s
}

// pending is what the watcher's status shows from now on.
func (s *stand) pending(set signalSet) {
	text := fmt.Sprintf("Name:\tx\nState:\tS (sleeping)\nShdPnd:\t%016x\nSigBlk:\t0\n", uint64(set))
	if _, err := s.status.WriteAt([]byte(text), 0); err != nil {
		s.t.Error(err)
	}
}

// arrive has the signal reach the holder, from a process that is none of ours.
func (s *stand) arrive() { s.holder.signal(&arrival{signo: harmless, pid: 1}, false) }

// next is the holder's next message to the watcher.
func (s *stand) next() message {
	var b [messageSize]byte
	n, err := unix.Read(s.link, b[:])
	if err != nil {
		s.t.Errorf("cannot read from the holder: %v", err)
	}
	m, err := parseMessage(b[:max(n, 0)])
	if err != nil {
		s.t.Error(err)
	}
	return m
}

func (s *stand) want(forwarded bool) {
	s.t.Helper()
	m := s.next()
	if m.kind != kindSignal || int(m.a) != harmless || (m.b != 0) != forwarded {
		s.t.Fatalf("got %+v, want signal %d, forwarded %v", m, harmless, forwarded)
	}
}

// answer takes the holder's next request, as a watcher in which these are
// pending then.
func (s *stand) answer(pending signalSet) {
	m := s.next()
	if m.kind != kindDrain || m.set != bit(harmless) {
		s.t.Errorf("got %+v, want a request", m)
	}
	s.pending(pending)
	m.kind = kindDrained
	s.say(m)
}

func (s *stand) say(m message) {
	var b [messageSize]byte
	m.put(&b)
	if _, err := unix.Write(s.link, b[:]); err != nil {
		s.t.Errorf("cannot write to the holder: %v", err)
	}
}

// A signal that comes before the watcher has said that it took its copy of the
// last is judged by what is pending when it has.
func TestSignalBeforeAnswer(t *testing.T) {
	for _, group := range []bool{true, false} {
		t.Run(fmt.Sprintf("to the group %v", group), func(t *testing.T) {
			s := newStand(t)
			s.pending(bit(harmless))
			s.arrive()
			s.want(false)
			var pending signalSet
			if group {
				pending = bit(harmless)
			}
			done := make(chan struct{})
			go func() { s.answer(pending); close(done) }()
			s.arrive()
			<-done
			s.want(!group)
		})
	}
}

// A watcher that does not answer delays one signal, and none is lost.
func TestMuteWatcher(t *testing.T) {
	s := newStand(t)
	s.pending(bit(harmless))
	s.arrive()
	s.want(false)
	s.arrive() // gets no answer in time
	request := s.next()
	s.want(true)
	if !s.holder.witness.mute {
		t.Error("it would be waited for again")
	}
	s.arrive()
	s.want(true)
	s.pending(0)
	request.kind = kindDrained
	s.say(request)
	s.holder.receive()
	s.pending(bit(harmless))
	s.arrive()
	s.want(false)
	if s.holder.witness.mute {
		t.Error("it has answered and is not waited for")
	}
}

// A signal that comes while the watcher is being started is judged with its
// witness. That of a hangup tells: without one it would stay with us.
func TestSignalWhileStarting(t *testing.T) {
	hangup := &arrival{signo: int(unix.SIGCONT), code: 0x80}
	for _, starts := range []bool{true, false} {
		t.Run(fmt.Sprintf("it starts %v", starts), func(t *testing.T) {
			s := newStand(t)
			link := s.holder.watcher.link
			s.holder.watcher = watcher{link: -1, starting: true, results: make(chan started, 1)}
			s.holder.witness = witness{status: -1}
			t.Cleanup(func() { s.holder.witness.close() })
			if starts {
				go func() { s.holder.watcher.results <- started{pid: os.Getpid(), link: link} }()
			}
			s.holder.signal(hangup, false)
			if s.holder.watcher.slow == starts {
				t.Errorf("slow is %v", s.holder.watcher.slow)
			}
			if !starts {
				return
			}
			if m := s.next(); m.kind != kindSignal || m.b == 0 {
				t.Errorf("got %+v, want the signal forwarded", m)
			}
		})
	}
}

// What the watcher reports as left over was evidence already, or becomes it
// before all signals are read: then it is not taken a second time, which would
// take the copy of a later signal.
func TestReportOfUsedEvidence(t *testing.T) {
	report := message{kind: kindPending, set: bit(harmless)}
	for name, do := range map[string]func(s *stand, use func()) (reported signalSet){
		"used before": func(s *stand, use func()) signalSet {
			use()
			s.say(report)
			s.answer(0)
			s.holder.receive()
			return s.holder.witness.reported
		},
		"used after": func(s *stand, use func()) signalSet {
			s.say(report)
			s.holder.receive()
			reported := s.holder.witness.reported
			use()
			s.answer(0)
			s.holder.receive()
			return reported
		},
		"used by none": func(s *stand, _ func()) signalSet {
			s.say(report)
			s.holder.receive()
			return s.holder.witness.reported
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.pending(bit(harmless))
			s.holder.witness.leftover(do(s, func() {
				s.arrive()
				s.holder.ask()
				s.want(false)
			}))
			m, any := s.holder.witness.request()
			if none := name == "used by none"; any != none || none && m.set != bit(harmless) {
				t.Errorf("asks %v, for %+v", any, m)
			}
		})
	}
}
