package loader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	injected "github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// Untried is a torch that recycling was not tried with, as a process that has it
// described it.
type Untried struct {
	Key        string   `json:"key"`        // names the text of its files and the minor version of Python
	Digest     string   `json:"digest"`     // names what that text says where recycling rests on it
	Torch      string   `json:"torch"`      // version
	Executable string   `json:"executable"` // sys.executable
	Hook       string   `json:"hook"`       // the directory of the hook
	Path       []string `json:"path"`       // sys.path

	data []byte
	node string // the directory of this user's runs on the node
}

const (
	untriedPrefix = "untried."
	verdictPrefix = "torch."
)

// Untried lists the torches of trainers that wait for a trial.
func (c *Control) Untried() []Untried {
	var list []Untried
	for _, id := range c.order {
		t := c.trainers[id]
		if t.Trial != event.TrialWaiting || slices.ContainsFunc(list, func(u Untried) bool { return u.Key == t.Key }) {
			continue
		}
		if u, err := ReadUntried(t.dir, t.Key); err == nil {
			list = append(list, u)
		}
	}
	return list
}

// ReadUntried returns what a process wrote into its run directory of a torch that is not
// known.
func ReadUntried(dir, key string) (Untried, error) {
	data, _, err := readSmall(filepath.Join(dir, untriedPrefix+key))
	u := Untried{data: data, node: filepath.Dir(dir)}
	if err == nil {
		err = json.Unmarshal(data, &u)
	}
	if err == nil && (!isKey(key) || u.Key != key) {
		err = errMalformed
	}
	u.Torch = clip(u.Torch)
	return u, err
}

// Tried hands what came of a trial to the trainers that have that torch.
func (c *Control) Tried(key string, v Verdict) error {
	var errs []error
	for _, id := range c.order {
		t := c.trainers[id]
		if t.Key != key || t.Trial != event.TrialWaiting {
			continue
		}
		text := strings.TrimSpace("ok\n" + v.Unrevived)
		if v.OK() {
			t.Trial, t.CanRecycle, t.Why = event.TrialTried, true, ""
		} else {
			text = v.Why
			t.Trial, t.CanRecycle, t.Why = event.TrialRefused, false, v.Why
		}
		errs = append(errs, replaceFile(filepath.Join(t.dir, verdictPrefix+key), []byte(text+"\n")))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot hand on what came of a trial: %w", err)
	}
	return nil
}

// Verdict is what came of a trial.
type Verdict struct {
	What      VerdictWhat `json:"verdict"`
	Why       string      `json:"why,omitempty"`       // where it is not [VerdictOK]
	Unrevived string      `json:"unrevived,omitempty"` // why no worker is replaced that dies, where it is
}

type VerdictWhat string

// The verdicts. After VerdictFailed a trial is made again, [failedKept] later: it
// crashed, hung, or could not be made.
const (
	VerdictOK      VerdictWhat = "ok"
	VerdictRefused VerdictWhat = "refused"
	VerdictFailed  VerdictWhat = "failed"
)

func (v Verdict) OK() bool { return v.What == VerdictOK }

const (
	failedKept = 24 * time.Hour
	verdictDir = "torch" // below the directory of the hooks, or of the runs
	maxOutput  = 1 << 20 // bytes of a trial's output that are looked at
	// trialPatience is how long a trial may take. It takes 6 to 12 s, and a minute where
	// the machine is busy.
	trialPatience = 10 * time.Minute
)

// trialPrefix begins the name of a trial's directory, in the directory for temporary files.
const trialPrefix = "rsswarden-trial."

// removeLeft removes this user's directories of trials that began before that time: their
// watcher was killed.
func removeLeft(before time.Time) {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), trialPrefix+"*"))
	for _, dir := range left {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || info.ModTime().After(before) {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			os.RemoveAll(dir)
		}
	}
}

// verdictMark begins the line of a trial that is for us.
const verdictMark = "rsswarden-trial: "

// Try makes a trial with the Python and the torch of u, in a session of its own, and
// keeps the result. It takes seconds and 250 to 350 MiB, with the least priority.
// Where ctx ends it there is no verdict, and an error; where it had run for two minutes
// by then it failed, so that one that hangs does not run in each short training. start starts
// a command, as its Start does. A verdict that could not be kept is returned with an error.
func Try(ctx context.Context, u Untried, env []string, start func(*exec.Cmd) error) (Verdict, error) {
	return tryFor(ctx, trialPatience, u, env, start)
}

func tryFor(ctx context.Context, patience time.Duration, u Untried, env []string, start func(*exec.Cmd) error) (Verdict, error) {
	v, err := try(ctx, patience, u, env, start)
	if err != nil {
		return v, fmt.Errorf("cannot try torch %s: %w", u.Torch, err)
	}
	return v, keepVerdict(u, env, v)
}

func try(ctx context.Context, patience time.Duration, u Untried, env []string, start func(*exec.Cmd) error) (Verdict, error) {
	failed := func(format string, args ...any) (Verdict, error) {
		return Verdict{What: VerdictFailed, Why: oneLine(fmt.Sprintf(format, args...))}, nil
	}
	if !IsHook(u.Hook) {
		return Verdict{}, fmt.Errorf("%q is no hook", u.Hook)
	}
	if err := checkHook(u.Hook); err != nil {
		return Verdict{}, err
	}
	if !filepath.IsAbs(u.Executable) || !strings.Contains(filepath.Base(u.Executable), "python") {
		return failed("%q is not a Python that can be started", u.Executable)
	}
	removeLeft(time.Now().Add(-time.Hour))
	dir, err := os.MkdirTemp("", trialPrefix)
	if err != nil {
		return Verdict{}, err
	}
	defer os.RemoveAll(dir)
	request := filepath.Join(dir, "request")
	if err := os.WriteFile(request, u.data, 0o600); err != nil {
		return Verdict{}, err
	}
	var out, errs output
	// The kernel sends the death signal when the thread dies that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(limited, u.Executable, "-B", filepath.Join(u.Hook, "_rsswarden", "trial.py"), request)
	cmd.Env = setEnv(slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "RSSWARDEN") || strings.HasPrefix(kv, "PYTHONSTARTUP=")
	}), "TMPDIR", dir)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	began := time.Now()
	err = start(cmd)
	if err == nil {
		err = cmd.Wait() // workers that it leaves end by themselves, as torch has it
	}
	if ctx.Err() != nil {
		if took := time.Since(began); took > patience/5 {
			return failed("the trial had not ended after %v", took.Round(time.Second))
		}
		return Verdict{}, ctx.Err()
	}
	var v Verdict
	for line := range bytes.Lines(out.kept) {
		if text, ok := bytes.CutPrefix(line, []byte(verdictMark)); ok && json.Unmarshal(text, &v) == nil {
			v.Why, v.Unrevived = oneLine(v.Why), oneLine(v.Unrevived)
		}
	}
	switch {
	case v.What == VerdictOK, v.What == VerdictRefused && v.Why != "":
		return v, nil
	case v.Why != "":
		return failed("%s", v.Why)
	case limited.Err() != nil:
		return failed("the trial took longer than %v", patience)
	case err != nil:
		return failed("the trial ended by %v%s", err, errs.last())
	}
	return failed("the trial said nothing%s", errs.last())
}

func oneLine(why string) string {
	return strings.ToValidUTF8(clip(strings.Join(strings.Fields(why), " ")), "?")
}

// output keeps the end of what a program writes.
type output struct{ kept []byte }

func (o *output) Write(p []byte) (int, error) {
	o.kept = append(o.kept, p...)
	o.kept = o.kept[max(0, len(o.kept)-maxOutput):]
	return len(p), nil
}

func (o *output) last() string {
	lines := strings.Split(strings.TrimSpace(string(o.kept)), "\n")
	if text := strings.TrimSpace(lines[len(lines)-1]); text != "" {
		return ": " + text
	}
	return ""
}

// SiteVerdicts is where root keeps verdicts for all users of a machine; empty for
// nowhere. Tests link another name in; no user can say one.
var SiteVerdicts = "/var/cache/rsswarden/torch"

// verdictName names the file of a verdict. There is none of a torch that is not well named.
func verdictName(u Untried) (name string, ok bool) {
	return u.Key + "." + strings.TrimPrefix(filepath.Base(u.Hook), hookPrefix), isKey(u.Key) && IsHook(u.Hook)
}

// verdictDirs are the directories where verdicts of the user's may be, best first: the user's
// cache and, where that cannot be written, the directory of the runs, which is this node's.
func verdictDirs(u Untried, env []string) (dirs []string) {
	for _, parent := range append(hookParents(env), u.node) {
		if parent != "" {
			dirs = append(dirs, filepath.Join(parent, verdictDir))
		}
	}
	return dirs
}

// KeptVerdict returns what came of an earlier trial with the same torch, Python and
// hook, from the user's cache or node, else from [SiteVerdicts]. A file that another user
// than root could have written, or that is not understood, counts for nothing.
func KeptVerdict(u Untried, env []string) (v Verdict, ok bool) {
	name, named := verdictName(u)
	if !named {
		return v, false
	}
	for _, dir := range verdictDirs(u, env) {
		if dir, err := nodedir.Resolve(dir); !ok && err == nil && nodedir.CheckOwn(dir) == nil {
			v, ok = readVerdict(dir, name)
		}
	}
	if (!ok || v.What == VerdictFailed) && SiteVerdicts != "" {
		dir, err := nodedir.Resolve(SiteVerdicts)
		if err == nil && checkRoots(dir) == nil && checkRoots(filepath.Join(dir, name)) == nil {
			if site, there := readVerdict(dir, name); there && site.What != VerdictFailed {
				return site, true
			}
		}
	}
	return v, ok
}

// checkRoots says whether root alone can write to a file or directory.
func checkRoots(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 {
		return fmt.Errorf("%s is not root's", path)
	}
	return checkSafe(path)
}

// KeepForAll keeps a verdict for all users of the machine. Only root can. Of a trial that
// failed nothing is kept.
func KeepForAll(u Untried, v Verdict) error {
	if v.What == VerdictFailed || SiteVerdicts == "" {
		return nil
	}
	if err := keepIn(SiteVerdicts, 0o755, checkRoots, u, v); err != nil {
		return fmt.Errorf("cannot keep the verdict for all users: %w", err)
	}
	return nil
}

func readVerdict(dir, name string) (v Verdict, ok bool) {
	if checkSafe(filepath.Join(dir, name)) != nil {
		return v, false
	}
	data, when, err := readSmall(filepath.Join(dir, name))
	if err != nil || json.Unmarshal(data, &v) != nil {
		return Verdict{}, false
	}
	v.Why, v.Unrevived = clip(v.Why), oneLine(v.Unrevived)
	switch v.What {
	case VerdictOK:
		return v, true
	case VerdictRefused:
		return v, v.Why != ""
	case VerdictFailed:
		age := time.Since(when)
		return v, v.Why != "" && age < failedKept && age > -failedKept
	}
	return Verdict{}, false
}

func keepVerdict(u Untried, env []string, v Verdict) error {
	var errs []error
	for _, dir := range verdictDirs(u, env) {
		err := keepIn(dir, 0o700, nodedir.CheckOwn, u, v)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot keep what came of the trial: %w", err)
	}
	return nil
}

// keepIn writes a verdict into a directory, which it makes where it is missing, for those who
// may enter that, whatever the umask: one that others may write is not believed.
func keepIn(dir string, mode os.FileMode, check func(dir string) error, u Untried, v Verdict) error {
	name, ok := verdictName(u)
	if !ok {
		return nil
	}
	dir, err := nodedir.MakeAll(dir, 2, uint32(mode))
	if err == nil {
		err = check(dir)
	}
	if err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	err = nodedir.Replace(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(v) })
	if mode != 0o700 {
		err = errors.Join(err, os.Chmod(filepath.Dir(dir), mode), os.Chmod(dir, mode))
	}
	return errors.Join(err, os.Chmod(path, mode&0o644))
}

const (
	// trialRoom is the headroom that every limit has to have for a trial, which takes
	// 250 to 350 MiB; with less than trialLeast a trial is ended.
	trialRoom  = 512 * rss.MiB
	trialLeast = 128 * rss.MiB
	// trialYouth is how long after a torch was first met a trial may begin: later the
	// training may be at its peak.
	trialYouth = 10 * time.Minute
)

// Trials looks after the torches of trainers whose text is not known: each is tried in a
// process of its own before a worker is recycled with it, and the verdict is kept in the
// user's cache. A probe does one thing at a time.
type Trials struct {
	*probe.Reader[func() trialResult, trialResult]
	environ func() []string
	start   func(*exec.Cmd) error
	dry     bool
	seen    map[string]*torchTrial // by their keys
	cancel  context.CancelFunc     // ends the trial that runs, nil for none
}

type torchTrial struct {
	since   time.Duration // when it was first met
	asked   bool          // the cache was looked into
	over    bool          // nothing more is done about it
	verdict *Verdict
}

// trialResult is what was found: a verdict that was kept, or that of a trial.
type trialResult struct {
	torch   Untried
	verdict Verdict
	found   bool
	made    bool // by a trial, now
	err     error
}

// TrialNews is what became of a torch: its trainers were given a verdict, or Why it stays
// without one in this run.
type TrialNews struct {
	Torch     Untried
	Why       string
	Unrevived string // why no worker is replaced that dies, though recycling is done
	Again     bool   // the verdict was for a trainer that came later
	Errs      []error
}

// NewTrials returns Trials that wake a loop by set. dry says that none is to be made.
func NewTrials(set *probe.Set, environ func() []string, start func(*exec.Cmd) error, dry bool) *Trials {
	return &Trials{environ: environ, start: start, dry: dry, seen: map[string]*torchTrial{}, Reader: probe.New(set, func(find func() trialResult) trialResult {
		injected.Point("trial")
		return find()
	})}
}

// Advance takes in what was found and does the next thing for the torches that wait for a
// verdict. left is what the fullest limit leaves.
func (t *Trials) Advance(now time.Duration, left rss.Bytes, c *Control) (news []TrialNews) {
	if r, ok := t.Take(); ok {
		t.cancel = nil
		switch {
		case r.found:
			t.seen[r.torch.Key].verdict = &r.verdict
			n := TrialNews{Torch: r.torch}
			if r.err != nil {
				n.Errs = append(n.Errs, r.err)
			}
			news = append(news, n.give(c, r.verdict))
		case r.made:
			news = append(news, t.leave(r.torch, fmt.Sprint(r.err)))
		}
	}
	if t.cancel != nil && left < trialLeast {
		t.cancel()
	}
	if t.Busy() || !t.wanted(c) {
		return news
	}
	for _, u := range c.Untried() {
		k := t.seen[u.Key]
		if k == nil {
			k = &torchTrial{since: now}
			t.seen[u.Key] = k
		}
		switch {
		case k.verdict != nil:
			n := TrialNews{Torch: u, Again: true}
			news = append(news, n.give(c, *k.verdict))
		case k.over || t.Busy():
		case !k.asked:
			k.asked = true
			t.Ask(func() trialResult {
				v, ok := KeptVerdict(u, t.environ())
				return trialResult{torch: u, verdict: v, found: ok}
			}, true)
		case t.dry:
			news = append(news, t.leave(u, "a dry run makes no trial"))
		case now-k.since > trialYouth:
			news = append(news, t.leave(u, fmt.Sprintf("a limit left less than %v for a trial", trialRoom)))
		case left >= trialRoom:
			ctx, cancel := context.WithCancel(context.Background())
			t.cancel = cancel
			t.Ask(func() trialResult {
				defer cancel()
				v, err := Try(ctx, u, t.environ(), t.start)
				return trialResult{torch: u, verdict: v, found: v.What != "", made: true, err: err}
			}, true)
		}
	}
	return news
}

// wanted says whether something may be done about the torch of a trainer.
func (t *Trials) wanted(c *Control) bool {
	for _, one := range c.trainers {
		if k := t.seen[one.Key]; one.Trial == event.TrialWaiting && (k == nil || !k.over) {
			return true
		}
	}
	return false
}

// give gives the verdict to the trainers that have the torch.
func (n TrialNews) give(c *Control, v Verdict) TrialNews {
	n.Unrevived = v.Unrevived
	if err := c.Tried(n.Torch.Key, v); err != nil {
		n.Errs = append(n.Errs, err)
	}
	return n
}

func (t *Trials) leave(u Untried, why string) TrialNews {
	t.seen[u.Key].over = true
	return TrialNews{Torch: u, Why: why}
}

// Stop ends a trial that runs, at our own end.
func (t *Trials) Stop(within time.Duration) {
	if t.cancel == nil {
		return
	}
	t.cancel()
	t.Wait(within)
	t.Take()
	t.cancel = nil
}
