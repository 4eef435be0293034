package action

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/memfile"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// How long a program of exec= may run, how long it has between TERM and KILL,
// and how long it may go on when the watcher ends.
const (
	ProgramTime  = 30 * time.Second
	programGrace = 2 * time.Second
	programLast  = 200 * time.Millisecond
)

// executing runs the programs of exec= rules. Their outcomes come when they have ended.
type executing struct {
	*Env
	*Programs
}

func (a *executing) Can(event.Rule, *event.Limit) event.Feasibility {
	return event.Feasibility{OK: true}
}

func (a *executing) Ask(d event.Decision, l *event.Limit) (Result, bool) {
	told := d
	if l != nil {
		c := *l
		told.Reading, l = &c, &c
	}
	line, err := json.Marshal(told)
	if err != nil {
		return Result{Reason: event.ReasonError, Detail: err.Error()}, true
	}
	p := Program{ID: d.ID, Command: d.Arg, Env: a.environment(&told), Stdin: append(text.JSON(line), '\n'), decision: d, limit: l}
	if !a.Run(p) {
		return Result{Reason: event.ReasonBusy}, true
	}
	return Result{}, false
}

// environment is the user's own, and the decision in variables. docs/rules.md names
// them.
func (a *executing) environment(d *event.Decision) []string {
	eta := ""
	if d.ETA != nil {
		eta = strconv.FormatFloat(*d.ETA, 'f', 0, 64)
	}
	var accounting, enforcer, nearest string
	if d.Reading != nil {
		accounting, enforcer = string(d.Reading.Accounting), d.Reading.Enforcer
		if d.Reading.PID != 0 {
			nearest = strconv.Itoa(d.Reading.PID)
		}
	}
	add := []string{
		"RSSWARDEN_EVENT=" + string(event.NameDecision),
		"RSSWARDEN_DECISION=" + strconv.FormatUint(d.ID, 10),
		"RSSWARDEN_RULE=" + d.Rule,
		"RSSWARDEN_ACTION=" + string(d.Action),
		"RSSWARDEN_LIMIT_NAME=" + string(d.Limit),
		"RSSWARDEN_ENFORCER=" + enforcer,
		"RSSWARDEN_COUNTED=" + accounting,
		"RSSWARDEN_ETA_S=" + eta,
		"RSSWARDEN_PID=" + strconv.Itoa(a.Pop.Command.PID),
		"RSSWARDEN_LIMIT_PID=" + nearest,
	}
	// As in the events: a count is not in bytes. All variables are set, so that none is
	// inherited, and sh -u works.
	counts := d.Limit.Counts()
	for _, v := range []struct {
		name  string
		value rss.Bytes
		count bool
	}{
		{"RSSWARDEN_USED_BYTES", d.Used, false}, {"RSSWARDEN_LIMIT_BYTES", d.LimitSize, false}, {"RSSWARDEN_THRESHOLD_BYTES", d.Threshold, false},
		{"RSSWARDEN_USED", d.Used, true}, {"RSSWARDEN_LIMIT_COUNT", d.LimitSize, true}, {"RSSWARDEN_THRESHOLD", d.Threshold, true},
	} {
		text := ""
		if v.count == counts {
			text = strconv.FormatUint(uint64(v.value), 10)
		}
		add = append(add, v.name+"="+text)
	}
	env := slices.DeleteFunc(hold.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(add, func(a string) bool { return strings.HasPrefix(a, name+"=") })
	})
	return append(env, add...)
}

// Program is one command of an exec= rule.
type Program struct {
	ID      uint64   // of the decision
	Command string   // for /bin/sh -c
	Env     []string // all of it
	Stdin   []byte

	decision event.Decision
	limit    *event.Limit
}

type Ran struct {
	Program
	Result
}

// Programs runs commands of exec= rules: one at a time, and one more may wait.
// Each has a session and process group of its own and goroutines of its own, so
// that nothing it does, or does not, keeps the watcher. It is over when the shell
// has ended and nothing of it holds its output any more, or at [ProgramTime],
// when its group gets TERM and then KILL. It dies with us: SIGKILL is what the
// kernel sends the shell when the watcher dies without a word.
type Programs struct {
	start func(*exec.Cmd) error
	say   func(line string)
	time  time.Duration // ProgramTime
	grace time.Duration // programGrace
	last  time.Duration // programLast

	ring    func() // says that one has ended; nil for nothing
	ended   chan Ran
	stop    chan struct{}
	current *Program // that runs
	waiting *Program
}

// NewPrograms returns Programs that starts them by start and hands each line of
// their output to say, from another goroutine.
func NewPrograms(start func(*exec.Cmd) error, say func(line string)) *Programs {
	return &Programs{start: start, say: say, time: ProgramTime, grace: programGrace, last: programLast, ended: make(chan Ran, 1), stop: make(chan struct{})}
}

// Run starts a program, or keeps it for when the one that runs has ended. It
// returns false where one is kept already.
func (s *Programs) Run(p Program) bool {
	switch {
	case s.waiting != nil:
		return false
	case s.current != nil:
		s.waiting = &p
	default:
		s.current = &p
		go func() {
			fault.Point("exec")
			s.ended <- Ran{p, s.run(&p)}
			if s.ring != nil {
				s.ring()
			}
		}()
	}
	return true
}

// Waiting is the ID of the program that waits for the one that runs, 0 for none.
func (s *Programs) Waiting() uint64 {
	if s.waiting == nil {
		return 0
	}
	return s.waiting.ID
}

// Ended yields what ended; hand each to [Programs.Next].
func (s *Programs) Ended() <-chan Ran { return s.ended }

// Next starts what waits for the one that has ended.
func (s *Programs) Next() {
	p := s.waiting
	s.current, s.waiting = nil, nil
	if p != nil {
		s.Run(*p)
	}
}

// Close gives the running program that long to end, and then ends it. It returns the
// results that were not reported yet.
func (s *Programs) Close(patience time.Duration) []Ran {
	running, waiting := s.current, s.waiting
	s.current, s.waiting = nil, nil
	if running == nil {
		return nil
	}
	var all []Ran
	if waiting != nil {
		all = append(all, Ran{*waiting, Result{Reason: event.ReasonVanished, Detail: "not started, what is watched had ended"}})
	}
	hang := time.NewTimer(patience + 3*s.last)
	defer hang.Stop()
	stop := time.NewTimer(patience)
	defer stop.Stop()
	for {
		select {
		case r := <-s.ended:
			return append([]Ran{r}, all...)
		case <-stop.C:
			close(s.stop)
		case <-hang.C:
			// The kernel ends the shell with us.
			r := Result{Reason: event.ReasonVanished, Detail: "what is watched had ended, and it does not end"}
			return append([]Ran{{*running, r}}, all...)
		}
	}
}

func (s *Programs) run(p *Program) Result {
	// The kernel sends the death signal when the thread dies that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	failed := func(err error) Result {
		return Result{Reason: event.ReasonError, Detail: err.Error(), Took: time.Since(began)}
	}
	in, err := fileOf(p.Stdin)
	if err != nil {
		return failed(fmt.Errorf("cannot make its standard input: %w", err))
	}
	defer in.Close()
	out, w, err := os.Pipe()
	if err != nil {
		return failed(fmt.Errorf("cannot make its standard output: %w", err))
	}
	defer out.Close()
	cmd := exec.Command("/bin/sh", "-c", p.Command)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Env, in, w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	err = s.start(cmd)
	w.Close()
	if err != nil {
		return failed(fmt.Errorf("cannot start it: %w", err))
	}
	v := vigil{pid: cmd.Process.Pid, dead: make(chan struct{}), silent: make(chan struct{})}
	go v.waitDead()
	go func() {
		fault.Point("exec-output")
		passOn(out, s.say)
		close(v.silent)
	}()
	r := Result{PID: v.pid}
	limit := time.NewTimer(s.time)
	defer limit.Stop()
	why := ""
	if !v.over(limit.C, s.stop) {
		grace := s.grace
		r.Reason, why = event.ReasonTimeout, "it ran for longer than "+s.time.String()
		select {
		case <-s.stop:
			grace = min(grace, s.last)
			r.Reason, why = event.ReasonVanished, "what is watched had ended"
		default:
		}
		// The shell is not waited for yet, so its group is still its own.
		_ = unix.Kill(-v.pid, unix.SIGTERM) // an empty group is fine
		if !v.over(time.After(grace), nil) {
			_ = unix.Kill(-v.pid, unix.SIGKILL)
			v.over(time.After(s.last), nil)
		}
	}
	if !v.shellEnded {
		go cmd.Wait() // the kernel does not let go of it
		r.Detail, r.Took = why+", and it does not end", time.Since(began)
		return r
	}
	err = cmd.Wait()
	r.Took = time.Since(began)
	return concluded(r, cmd.ProcessState, err, why)
}

// concluded says how the shell ended. why, and then the reason, is set where we
// ended it, or what it left behind.
func concluded(r Result, st *os.ProcessState, err error, why string) Result {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || st == nil {
		r.Reason, r.Detail = event.ReasonError, fmt.Sprint("cannot wait for it: ", err)
		return r
	}
	code := st.ExitCode()
	r.Detail = fmt.Sprintf("exit status %d", code)
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = -int(ws.Signal())
		r.Detail = "killed by " + unix.SignalName(ws.Signal())
	}
	r.Exit = &code
	switch {
	case code == 0:
		r.OK, r.Reason = true, event.ReasonDone
	case why == "":
		r.Reason = event.ReasonStatus
	}
	if why != "" {
		r.Detail += ", " + why
	}
	return r
}

// vigil waits for the end of a shell, without taking its status, and for the end
// of its output.
type vigil struct {
	pid          int
	dead, silent chan struct{}
	shellEnded   bool
}

func (v *vigil) waitDead() {
	for unix.Waitid(unix.P_PID, v.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	close(v.dead)
}

// over waits for both ends, until the time is up or stop is closed.
func (v *vigil) over(up <-chan time.Time, stop <-chan struct{}) bool {
	for v.dead != nil || v.silent != nil {
		select {
		case <-v.dead:
			v.dead, v.shellEnded = nil, true
		case <-v.silent:
			v.silent = nil
		case <-up:
			return false
		case <-stop:
			return false
		}
	}
	return true
}

// fileOf returns an unnamed file that holds b: reading it never blocks and needs no writer.
func fileOf(b []byte) (*os.File, error) {
	if f, err := memfile.Of("rsswarden-event", b); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp("", "rsswarden-event-")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name())
	return memfile.Fill(f, b)
}

// The most of a program's output that is passed on.
const (
	maxLines = 50
	maxLine  = 400
)

// passOn hands the lines of a program's output to say, the first of them and of
// each so much, and reads the rest, so that the program never waits for us.
func passOn(r io.Reader, say func(string)) {
	b := bufio.NewReaderSize(r, maxLine)
	lines, long := 0, false
	for {
		part, err := b.ReadSlice('\n')
		if len(part) > 0 && !long {
			if lines++; lines <= maxLines {
				say(text.Plain(strings.TrimRight(string(part), "\r\n")))
			}
		}
		long = err == bufio.ErrBufferFull
		if err != nil && !long {
			break
		}
	}
	if lines > maxLines {
		say(fmt.Sprintf("(%d more lines are left out)", lines-maxLines))
	}
}
