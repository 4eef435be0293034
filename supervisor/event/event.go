// Package event is the one schema of what rsswarden says to programs: the
// lines of --events and the entries of the record. A line is one JSON object
// with "v", "time", "seq" and "event"; the first is start, the last exit.
//
// Fields are only ever added. A reader that ignores what it does not know
// keeps working.
package event

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Version is the value of "v".
const Version = 1

// Head begins every line.
type Head struct {
	V     int       `json:"v"`     // the version of this form; a reader may refuse one that it does not know
	Time  time.Time `json:"time"`  // RFC 3339, with nanoseconds
	Seq   uint64    `json:"seq"`   // from 1; a gap means dropped samples
	Event Name      `json:"event"` // which event this is
}

// When returns the time of the event.
func (h Head) When() time.Time { return h.Time }

// Limit is one way to die and how far off it is, as read at one moment.
type Limit struct {
	Name  LimitName `json:"limit"` // which limit
	Scope Scope     `json:"scope"` // what it counts
	// Accounting says what Used means.
	Accounting Accounting `json:"accounting,omitempty"`
	// Used is what the enforcer compares with Limit: for a cgroup the
	// unreclaimable part of the charge, for Slurm exactly its sum.
	Used rss.Bytes `json:"used_bytes"`
	// UsedMax is above Used where the truth is only known to lie between the
	// two (PSS between two readings); else it equals Used.
	UsedMax rss.Bytes `json:"used_max_bytes,omitempty"`
	// Age is how many seconds old the oldest reading of PSS is that Used rests
	// on; left out where there is none. What was never read is in UsedMax whole.
	// Of a limit on a number it is how long ago was counted, from 1 s on.
	Age   float64   `json:"age_s,omitempty"`
	Limit rss.Bytes `json:"limit_bytes"` // where the enforcer acts
	// ETA is the forecast time to the limit in seconds, nil where none is made.
	ETA *float64 `json:"eta_s"`
	Outlook
	// Files is what of Used is pages of files, which bounds how far they grow.
	Files FilePages `json:"-"`

	// Charged and WorkingSet are a cgroup's usage, and usage less inactive
	// file cache. Neither kills.
	Charged    rss.Bytes `json:"charged_bytes,omitempty"`
	WorkingSet rss.Bytes `json:"working_set_bytes,omitempty"`

	Enforcer    string `json:"enforcer,omitempty"`     // who ends the job: "kernel OOM killer", "slurmstepd"
	UsedSource  string `json:"used_source,omitempty"`  // where Used was read
	LimitSource string `json:"limit_source,omitempty"` // where Limit was read
	// PID and Role are the process that is nearest to a limit on each process.
	PID  int      `json:"pid,omitempty"`
	Role rss.Role `json:"role,omitempty"`
	// Level is the cgroup directory that has the limit; of slurmstepd's limits
	// the step, "46.0", where several are watched; else empty.
	Level string `json:"level,omitempty"`
	// Binding marks the limit that is forecast to end the job first.
	Binding bool `json:"binding,omitempty"`
	// Note is a sentence for people, for instance that page cache is at
	// the limit and that this is harmless.
	Note string `json:"note,omitempty"`
}

// Outlook is what is forecast of a limit beside its ETA.
type Outlook struct {
	// ETALow and ETAHigh bound the forecast (90 %). ETAHigh is nil where growth may
	// flatten before: no rule on the forecast fires then.
	ETALow  *float64 `json:"eta_low_s,omitempty"`
	ETAHigh *float64 `json:"eta_high_s,omitempty"`
	// Flattens is what Used is forecast to flatten at, below the limit; ETA is nil then.
	Flattens rss.Bytes `json:"flattens_bytes,omitempty"`
	// Spike is what was taken at once and given back, more than once; nil for none that
	// matters for the limit.
	Spike *Spike `json:"spike,omitempty"`
}

// Spike is memory that is taken within a second and given back within half a minute.
type Spike struct {
	Bytes rss.Bytes `json:"bytes"`              // how much
	Up    rss.Bytes `json:"up_bytes,omitempty"` // … and what of that is used now
	// PID and Role are the process that took as much, and what it was; left out where it was
	// all that the limit counts.
	PID  int      `json:"pid,omitempty"`
	Role rss.Role `json:"role,omitempty"`
}

// Ahead is what of it may come at any moment.
func (s *Spike) Ahead() rss.Bytes { return s.Bytes.Sub(s.Up) }

// Leaps says that a spike as was seen before, from here, would reach the limit.
func (l *Limit) Leaps() bool { return l.Spike != nil && l.Used+l.Spike.Ahead() >= l.Limit }

// FilePages are pages of files that count against a limit, in bytes: those in memory now,
// and all that processes have mapped of these files; 0 where that is not known.
type FilePages struct{ Now, Most rss.Bytes }

// LimitID tells one limit from the others over time: a cgroup limit may exist at several
// levels, Slurm may sum in two ways, for a step and for the job.
type LimitID struct {
	Name       LimitName  `json:"limit"`                // the limit
	Scope      Scope      `json:"scope,omitempty"`      // what it counts
	Accounting Accounting `json:"accounting,omitempty"` // how that adds up
	Level      string     `json:"level,omitempty"`      // as that of a limit
}

// ID returns which limit it is a reading of.
func (l *Limit) ID() LimitID { return LimitID{l.Name, l.Scope, l.Accounting, l.Level} }

// Place is LimitSource for a sentence: a path of a cgroup shortened to its last two
// names, and what a user calls what slurmstepd leaves in RLIMIT_RSS. A file with a limit of
// the user's own is to be found by its name: that stays whole.
func (l *Limit) Place() string {
	if l.LimitSource == "RLIMIT_RSS" {
		return "--mem, read from RLIMIT_RSS"
	}
	names := strings.Split(l.LimitSource, "/")
	if strings.HasPrefix(l.LimitSource, "/") && len(names) > 3 && l.Name != LimitUser {
		return strings.Join(names[len(names)-2:], "/")
	}
	return l.LimitSource
}

// NearShare is the [Limit.Ratio] from which on a limit counts as near.
const NearShare = 0.8

// Ratio is used over limit, 0.91 for 91 %.
func (l *Limit) Ratio() float64 { return l.Used.Of(l.Limit) }

// Headroom is what is left before the limit.
func (l *Limit) Headroom() rss.Bytes { return l.Limit.Sub(l.Used) }

// Compared is what is held against the limit, for people: "summed RSS".
func (l *Limit) Compared() string {
	if use := l.Name.row().Use; use != "" {
		return use
	}
	what := cmp.Or(l.Accounting.Sum(), "use")
	if l.Name == LimitSlurm && l.Accounting == AccountingCgroup {
		what = "summed memory of the tasks' cgroups"
	}
	if l.ByJobSum() {
		what += ", all steps of the job on this node"
	}
	return what
}

// ByJobSum says that it is slurmd's limit on all steps of a job on its node together
// (OverMemoryKill): slurmd cancels the job, where slurmstepd kills one step.
func (l *Limit) ByJobSum() bool {
	return l.Name == LimitSlurm && l.Scope == ScopeJob && !strings.HasPrefix(l.Enforcer, "slurmstepd")
}

// Setting is one option with its value and where the value came from: "flag",
// "environment", "site" (the site's configuration file), "site (locked)",
// "default", or the absolute path of the user's configuration file.
type Setting struct {
	Name   string `json:"name"`   // the option's
	Value  string `json:"value"`  // as it is in force; secrets are left out
	Origin string `json:"origin"` // where it came from
}

// Start is the first event.
type Start struct {
	Head
	Command  []string  `json:"command"`  // the command with its arguments, cut short at 16 KiB
	PID      int       `json:"pid"`      // that of the command
	Version  string    `json:"version"`  // rsswarden's
	Settings []Setting `json:"settings"` // all options
	// Rules is the ladder, the defaults included, from mild to hard as given.
	Rules  []string `json:"rules,omitempty"`
	Limits []Limit  `json:"limits"` // those that were found
	// Restarts counts how often the watcher had to be started again.
	Restarts int `json:"restarts,omitempty"`
	// Attached says that rsswarden did not start what is watched: the process
	// PID, or all of the Slurm job Job on this node. Cannot is what cannot be
	// done from outside and why, for people.
	Attached bool     `json:"attached,omitempty"`
	Job      string   `json:"job,omitempty"`
	Cannot   []string `json:"cannot,omitempty"`
}

// Found says that a limit was found or has changed, or that the job's end, the
// limit time, has moved by more than 5 s.
type Found struct {
	Head
	Limit
}

// Sample is the use of the limits.
type Sample struct {
	Head
	Limits []Limit          `json:"limits"` // all that are known, the binding one marked
	Procs  map[rss.Role]int `json:"procs"`  // processes of the tree
	Gaps   rss.Gaps         `json:"gaps"`   // processes that could not be read
	// Dropped counts samples that were taken and not written since the last.
	Dropped uint64 `json:"dropped,omitempty"`
	// Ours is what rsswarden itself costs, once a minute.
	Ours []Cost `json:"ours,omitempty"`
}

// Cost is what one process of rsswarden's costs, from its start until now.
type Cost struct {
	Process string    `json:"process"`    // "holder" or "watcher"
	PID     int       `json:"pid"`        // its own
	RSS     rss.Bytes `json:"rss_bytes"`  // VmRSS of /proc/PID/status
	Anon    rss.Bytes `json:"anon_bytes"` // RssAnon of /proc/PID/status
	PSS     rss.Bytes `json:"pss_bytes"`  // Pss of /proc/PID/smaps_rollup
	Threads int       `json:"threads"`    // of /proc/PID/status
	// Descriptors are the open ones.
	Descriptors int `json:"descriptors"`
	// CPU is user and system time in seconds, of /proc/PID/stat.
	CPU float64 `json:"cpu_s"`
	// Wakeups are voluntary context switches of the threads that live.
	Wakeups uint64 `json:"wakeups"`
}

// Decision says that a rule fired.
type Decision struct {
	Head
	ID     uint64    `json:"id"`            // from 1; its outcome names it
	Rule   string    `json:"rule"`          // as written: "85%:trim"
	Limit  LimitName `json:"limit"`         // the limit that the rule is about
	Action Action    `json:"action"`        // what is begun
	Arg    string    `json:"arg,omitempty"` // of signal=, exec=, requeue=
	// Rung is the parsed rule, and On the limit with its scope and level. The action uses
	// them; they are not written, and zero where a user requested the action.
	Rung Rule    `json:"-"`
	On   LimitID `json:"-"`

	// PID is the process that is nearest to a limit on each process.
	PID       int       `json:"pid,omitempty"`
	Used      rss.Bytes `json:"used_bytes"`      // what the limit counts, as it was read last
	LimitSize rss.Bytes `json:"limit_bytes"`     // the limit, as it is in force
	Threshold rss.Bytes `json:"threshold_bytes"` // the use at which the rung is
	// Lead is how far before its rung the rule fired: by as much as the limit was expected to
	// grow, at the rate seen, before the action takes effect, or as a spike would leap over the
	// rung and reach the limit. Spike is set in that case alone.
	Lead rss.Bytes `json:"lead_bytes,omitempty"`
	ETA  *float64  `json:"eta_s"` // the forecast time to the limit, null where none is made
	Outlook
	// By is the PID of who asked for it by the control socket, 0 where that is not
	// known, or where the ladder decided.
	By int `json:"by,omitempty"`
	// Reading is the limit as it was read, for a command of exec= only:
	// elsewhere a sample with all of them goes before.
	Reading *Limit `json:"reading,omitempty"`
}

// AskedFor is the rule of a decision that was asked for by the control socket.
const AskedFor = "asked for"

// Asked says that no rule decided so.
func (d *Decision) Asked() bool { return d.Rule == AskedFor }

// Roomy is the share of a limit below which memory asks for nothing.
const Roomy = 0.7

// Unneeded says that a user asked for the action while memory did not need it: what it gives
// back kept nothing under a limit.
func (d *Decision) Unneeded() bool {
	return d.Asked() && (d.LimitSize == 0 || d.Used.Of(d.LimitSize) < Roomy)
}

// Outcome is the result of a decision.
type Outcome struct {
	Head
	Decision uint64    `json:"decision"`         // the id of the decision, 0 where a rule was crossed and its action could not help
	Action   Action    `json:"action,omitempty"` // … the action of that rule
	OK       bool      `json:"ok"`               // whether it was carried out
	Reason   Reason    `json:"reason,omitempty"` // why not, or how far
	Detail   string    `json:"detail,omitempty"` // for people
	PID      int       `json:"pid,omitempty"`    // the process acted on
	Before   rss.Bytes `json:"before_bytes"`     // what the limit counted before
	After    rss.Bytes `json:"after_bytes"`      // what it counts now
	Freed    rss.Bytes `json:"freed_bytes"`      // what it gave back
	Duration float64   `json:"duration_s"`       // from the decision until now
	// Paused is how long the trainer paused for it, in seconds.
	Paused float64 `json:"paused_s,omitempty"`
	// Stopped is how long a process was stopped by ptrace for it at most, in
	// seconds: from its first thread's stop until its last went on.
	Stopped float64 `json:"stopped_s,omitempty"`
	// Exit is the exit status of a command of exec=, negative for a signal.
	Exit *int `json:"exit,omitempty"`
}

// LoaderSaid passes on what the loader hook reported, and what came of processes
// that were trimmed without it.
type LoaderSaid struct {
	Head
	What   Loader    `json:"what"`                  // what it is about
	PID    int       `json:"pid"`                   // the process that reported, or was trimmed
	Worker int       `json:"worker,omitempty"`      // PID of the worker it is about
	Reason string    `json:"reason,omitempty"`      // why, of what was refused or switched off
	Freed  rss.Bytes `json:"freed_bytes,omitempty"` // what was given back
	Paused float64   `json:"paused_s,omitempty"`    // how long the trainer paused for it
	// Count is how many trims one report stands for, where a worker keeps to a
	// budget by itself.
	Count int `json:"count,omitempty"`
	// Exit is the exit status of a worker that was replaced, negative for a
	// signal. Where it is not known it is -1, and Reason says why.
	Exit int `json:"exit,omitempty"`
	// By is "ptrace" where that did it; empty for the hook. Freed is then the
	// fall of RssFile in /proc/PID/status, and Stopped as in an outcome.
	By      string  `json:"by,omitempty"`
	Stopped float64 `json:"stopped_s,omitempty"`
	// Sharing is what goes with LoaderPickling and LoaderRaised.
	Sharing *Sharing `json:"sharing,omitempty"`
	// Trial is what is known of the process's PyTorch, with LoaderIter and LoaderTried.
	Trial Trial `json:"trial,omitempty"`
	// Pool is the class of a pool of worker processes, with LoaderIter; empty for a DataLoader.
	Pool string `json:"pool,omitempty"`
}

// Sharing is what it takes to send the tensors of a data set to workers that are
// not forked: torch.multiprocessing moves each to shared memory.
type Sharing struct {
	Method   string `json:"start_method"` // "spawn" or "forkserver"
	Strategy string `json:"strategy"`     // "file_descriptor" or "file_system"
	Workers  int    `json:"workers"`      // how many the loader starts
	// Tensors counts those found, by their storages, which are what is shared. More says that
	// there may be more: the walk was ended by its time or its depth, or met what it
	// does not look into.
	Tensors int       `json:"tensors"`
	Bytes   rss.Bytes `json:"tensor_bytes"` // the size of those tensors together
	More    bool      `json:"more,omitempty"`
	// Maps and FDs are how many mappings and descriptors the process will have
	// then, MaxMaps, MaxFDs and HardFDs what it may have, by vm.max_map_count and the
	// soft and hard RLIMIT_NOFILE; 0 for what could not be read.
	Maps    int `json:"maps_needed"`
	MaxMaps int `json:"maps_limit"`
	FDs     int `json:"fds_needed"`
	MaxFDs  int `json:"fds_limit"`
	HardFDs int `json:"fds_hard_limit"`
	// Sent is how many descriptors go to the fork server in one message as a worker
	// is started, MaxSent the most that Linux takes; both 0 with any other way.
	Sent    int `json:"fds_sent,omitempty"`
	MaxSent int `json:"fds_sent_limit,omitempty"`
	// Before is the soft RLIMIT_NOFILE as it was, of LoaderRaised; MaxFDs is
	// what it is now.
	Before int `json:"fds_limit_before,omitempty"`
}

// Near says that sending takes half of a limit or more.
func (s *Sharing) Near() bool {
	return 2*s.Maps >= s.MaxMaps && s.MaxMaps > 0 || 2*s.FDs >= s.MaxFDs && s.MaxFDs > 0 || 2*s.Sent >= s.MaxSent && s.MaxSent > 0
}

// ByPtrace is the value of [LoaderSaid.By] for ptrace(2).
const ByPtrace = "ptrace"

// Fault says that a part of rsswarden stopped working.
type Fault struct {
	Head
	Part  string `json:"part"`  // "events", "loader", "cgroup", …
	Error string `json:"error"` // what went wrong, for people
}

// Signal says that a signal reached the holder, as `scancel` and the job's end
// bring it about.
type Signal struct {
	Head
	Signal string `json:"signal"` // "SIGTERM"
	// Sender is the PID it came from, 0 for the kernel or another PID namespace,
	// and Comm the name of that process where it could still be read.
	Sender int    `json:"sender,omitempty"`
	Comm   string `json:"comm,omitempty"`
	// Forwarded says that the command got it from us; else it had it already.
	Forwarded bool `json:"forwarded"`
}

// Help is what the ladder knew of an action that a rule was about to ask
// for, where that has changed. It is written to the record alone: with it the
// ladder can be run again.
type Help struct {
	Head
	Rule   string     `json:"rule"`                 // the rule, as written
	Limit  LimitName  `json:"limit"`                // the limit that it is about
	Scope  Scope      `json:"scope"`                // what that counts
	Acct   Accounting `json:"accounting,omitempty"` // how that adds up
	Level  string     `json:"level,omitempty"`      // as that of a limit
	OK     bool       `json:"ok"`                   // whether the action can help now
	Gain   rss.Bytes  `json:"gain_bytes,omitempty"` // what it would give back, an estimate
	More   bool       `json:"more,omitempty"`       // Gain is a lower bound
	Later  bool       `json:"later,omitempty"`      // it may help at another time
	Reason Reason     `json:"reason,omitempty"`     // why not
	Detail string     `json:"detail,omitempty"`     // the same for people
	// Lead is what the rule fires ahead of its rung.
	Lead rss.Bytes `json:"lead_bytes,omitempty"`
}

// KernelKills counts processes that the kernel's OOM killer ended at one cgroup
// while the run lasted: oom_kill of memory.events or memory.oom_control.
type KernelKills struct {
	Level string `json:"level"` // the cgroup directory
	Scope Scope  `json:"scope"` // what that cgroup is of
	Kills uint64 `json:"kills"` // how many, at it and below
	// Leaf says that the level is the command's own: its processes were killed.
	Leaf bool `json:"leaf,omitempty"`
}

// Peaks is the most that was used, by each way of adding up; nil where an
// accounting was not read.
type Peaks struct {
	RSS      *rss.Bytes `json:"rss_bytes"`      // summed RSS
	PSS      *rss.Bytes `json:"pss_bytes"`      // sum of PSS
	NoShared *rss.Bytes `json:"noshared_bytes"` // summed RSS without shared pages
	Cgroup   *rss.Bytes `json:"cgroup_bytes"`   // the cgroup's charge that reclaim cannot take back
}

// Exit is the last event.
type Exit struct {
	Head
	// By is "command" or "rsswarden": who ended it. It is "detached" where only
	// the watch has ended, and what was attached to runs on.
	By     string  `json:"by"`
	Code   *int    `json:"code"`   // nil where it died by a signal or is unknown
	Signal *string `json:"signal"` // "SIGKILL", nil where it exited
	Peaks  Peaks   `json:"peaks"`  // the most that was used
	// Binding is the limit that came nearest.
	Binding *Limit `json:"binding,omitempty"`
	Brief
	// Advice is the --mem to use next, 0 where the run does not tell.
	Advice    rss.Bytes `json:"advice_mem_bytes,omitempty"`
	AdviceWhy string    `json:"advice_why,omitempty"` // what that rests on, for people
	// Kernel is where the kernel's OOM killer struck, the innermost level first.
	Kernel []KernelKills `json:"kernel_oom_kills,omitempty"`
	// Slowed counts the allocations that the kernel slowed down above memory.high: "high" of
	// memory.events of the cgroup where it rose most.
	Slowed uint64 `json:"slowed_allocations,omitempty"`
	// Left is what of the tree still ran when the command had ended, by role.
	Left []Left `json:"left,omitempty"`
	// Ours is what rsswarden itself cost.
	Ours []Cost `json:"ours,omitempty"`
}

// UnmarshalJSON reads an exit event; of a record of a former version, which had a verdict,
// it makes the outcome of that.
func (e *Exit) UnmarshalJSON(b []byte) error {
	type plain Exit
	former := struct {
		*plain
		Verdict string `json:"verdict"`
	}{plain: (*plain)(e)}
	if err := json.Unmarshal(b, &former); err != nil {
		return err
	}
	if e.Outcome == "" {
		e.upgrade(former.Verdict)
	}
	return nil
}

// verdicts are what the verdicts of former versions say.
var verdicts = map[string]Brief{
	"requeued": {Outcome: RunRequeued}, "stopped": {Outcome: RunStopped}, "oom": {Outcome: RunOOM},
	"exhausted": {Outcome: RunExhausted}, "killed": {Outcome: RunKilled}, "led": {Watched: WatchedRank},
	"unwatched": {Watched: WatchedParts}, "carried": {Helped: HelpedYes}, "helpless": {Helped: HelpedRefused},
}

// upgrade sets the outcome by a verdict of former versions.
func (e *Exit) upgrade(verdict string) {
	is := verdicts[verdict]
	e.Outcome, e.Memory = is.Outcome, MemoryAt(e.Binding)
	e.Watched, e.Helped = cmp.Or(is.Watched, WatchedAll), cmp.Or(is.Helped, HelpedNo)
	if e.Advice > 0 {
		e.Next = Next{Kind: NextEnough, Option: "--mem", Size: e.Advice}
	}
	switch {
	case e.Outcome != "":
		if e.Advice > 0 && e.Outcome != RunRequeued {
			e.Next.Kind = NextGuess
		}
	case e.Code == nil && e.Signal == nil:
		e.Outcome = RunUnknown
	case e.Signal != nil || *e.Code != 0:
		e.Outcome = RunFailed
	case e.Memory == MemoryOver:
		e.Outcome = RunOver
	case e.Helped == HelpedYes:
		if e.Outcome = RunKept; e.Advice > 0 {
			e.Next.Kind = NextKeep
		}
	case e.Memory == MemoryTight:
		e.Outcome = RunTight
	default:
		e.Outcome = RunOK
	}
}

// Left counts processes of one role that outlived the command.
type Left struct {
	Role  rss.Role  `json:"role"`      // of these processes
	Procs int       `json:"procs"`     // how many there are
	RSS   rss.Bytes `json:"rss_bytes"` // the sum of their RSS
	PIDs  []int     `json:"pids"`      // of the first 8
}

// Name is the name of an event, the field "event" of every line.
type Name string

// The events: what each tells, [Name.Says] says.
const (
	NameStart     Name = "start"
	NameLimit     Name = "limit"
	NameSample    Name = "sample"
	NameDecision  Name = "decision"
	NameOutcome   Name = "outcome"
	NameLoader    Name = "loader"
	NameDiagnosis Name = "diagnosis"
	NameCure      Name = "cure"
	NameRank      Name = "rank"
	NameFault     Name = "fault"
	NameSignal    Name = "signal"
	NameHelp      Name = "help"
	NameHandover  Name = "handover"
	NameJudged    Name = "judged"
	NameMapped    Name = "mapped"
	NameExit      Name = "exit"
)

// nameRow is what is known of an event by its name.
type nameRow struct {
	name Name
	says string
	make func() any
}

// kinds are the events, in the order in which a run meets them.
var kinds = []nameRow{
	{NameStart, "The watch began: command, options and where each came from, limits.", func() any { return &Start{} }},
	{NameLimit, "A limit was found or has changed.", func() any { return &Found{} }},
	{NameSample, "The use of the limits, at most one an interval.", func() any { return &Sample{} }},
	{NameDecision, "A rule fired.", func() any { return &Decision{} }},
	{NameOutcome, "The result of a decision.", func() any { return &Outcome{} }},
	{NameLoader, "A report of the loader hook.", func() any { return &LoaderSaid{} }},
	{NameDiagnosis, "Why something grows, and what to change.", func() any { return &Diagnosis{} }},
	{NameCure, "Something was changed before it could go wrong, by the user's wish.", func() any { return &Cure{} }},
	{NameRank, "A rank of the job on this node came or ended, or leads.", func() any { return &Rank{} }},
	{NameFault, "A part of rsswarden stopped working; the command runs on.", func() any { return &Fault{} }},
	{NameSignal, "A signal reached rsswarden.", func() any { return &Signal{} }},
	{NameHelp, "What the ladder knew of an action; in the record alone.", func() any { return &Help{} }},
	{NameHandover, "What was taken over from the leader before; in the record alone.", func() any { return &Handover{} }},
	{NameJudged, "What the ladder was given when it changed its mind; in the record alone.", func() any { return &Judged{} }},
	{NameMapped, "How much limits would count if workers read all that they have mapped; in the record alone.", func() any { return &Mapped{} }},
	{NameExit, "The command has ended: status, outcome, peaks, what was done, what to ask for next.", func() any { return &Exit{} }},
}

// Names lists every event in the order in which a run meets them.
func Names() []Name { return listed(kinds, func(k *nameRow) Name { return k.name }) }

// row is what is known of the event: nothing of one that this version does not have.
func (n Name) row() nameRow {
	for _, k := range kinds {
		if k.name == n {
			return k
		}
	}
	return nameRow{make: func() any { return nil }}
}

// Says is a sentence for people: what the event means.
func (n Name) Says() string { return n.row().says }

// New returns a pointer to an empty event of that name, nil for a name that this version
// does not know.
func (n Name) New() any { return n.row().make() }

// RankNews is what happened to one rank of a job, the field "what" of a rank event.
type RankNews string

// What happens to ranks.
const (
	RankJoined  RankNews = "joined"  // it is on this node and was not reported before
	RankEnded   RankNews = "ended"   // its command has ended
	RankLeads   RankNews = "leads"   // its watcher records the job on this node from now on
	RankFollows RankNews = "follows" // its watcher leaves that to the leader
)

// Rank is news of one rank of the job on one node: one task that runs under
// rsswarden. The leader's record has those of all ranks of its node.
type Rank struct {
	Head
	What RankNews `json:"what"` // what happened
	// Task is SLURM_PROCID, -1 where it is not known.
	Task int    `json:"task"`
	Step string `json:"step,omitempty"` // "0", "batch"; empty outside a step
	Node string `json:"node,omitempty"` // SLURMD_NODENAME, else uname(2)
	// PID is the command's, Holder the holder's, 0 where they are not known.
	PID    int `json:"pid,omitempty"`
	Holder int `json:"holder,omitempty"`
	// Leader is the PID of the watcher that leads, 0 where none does.
	Leader int `json:"leader,omitempty"`
	// Code and Signal are how the command ended, of RankEnded: both nil where
	// that is unknown, and with all other news.
	Code   *int    `json:"code,omitempty"`
	Signal *string `json:"signal,omitempty"` // "SIGKILL"
}

// Failed says that the command of the rank is known to have ended otherwise than
// with exit status 0.
func (r *Rank) Failed() bool {
	return r.What == RankEnded && (r.Signal != nil || r.Code != nil && *r.Code != 0)
}

// Handover is what the ladder took in of what the leader before it had done. It is
// written to the record alone: with it the ladder can be run again.
type Handover struct {
	Head
	// Ran is how long the run had lasted at that moment, on the clock of samples,
	// which is never set. Clock is the moment on the clock of the memory's times.
	Ran   time.Duration `json:"ran_ns"`
	Clock time.Duration `json:"clock_ns"`
	// Own is the level under which the memory has the limits of the watcher's own
	// step, which have none while it is alone; empty outside a step.
	Own string `json:"own_level,omitempty"`
	// Now is the moment on the watcher's clock.
	Now time.Duration `json:"now_ns,omitempty"`
	// Memory is what the ladder remembers, as package policy writes it.
	Memory json.RawMessage `json:"memory"`
}

// Mapped is how far pages of files can grow: the memory that limits would count at most had
// workers all in memory that they have mapped of files. It is written to the record alone,
// when it has grown.
type Mapped struct {
	Head
	Workers int       `json:"workers"`    // that have mapped files
	Each    rss.Bytes `json:"each_bytes"` // file pages of the one that has mapped most, all read
	// Limits has as their use the most so far of what is used and what is mapped and not in
	// memory; one without a name is the tree's summed RSS.
	Limits []Limit `json:"limits"`
}
