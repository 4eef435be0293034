package event

import (
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
)

// Action is what a rule asks for.
type Action string

// The actions, from mild to hard: what each does, [Action.Says] tells.
const (
	ActionWarn     Action = "warn"
	ActionTrim     Action = "trim"
	ActionTrimDrop Action = "trim+drop" // of records of former versions; no rule has it
	ActionRecycle  Action = "recycle"
	ActionGC       Action = "gc"
	ActionSignal   Action = "signal"
	ActionExec     Action = "exec"
	ActionRequeue  Action = "requeue"
	ActionStop     Action = "stop"
)

// kind is what sort of action one is.
type kind int

const (
	acts  kind = iota // it does something to what is watched, see [Action.Acts]
	tells             // it is a line and an alert, no more
	asks              // see [Action.Asks]
	frees             // it acts, and see [Action.Frees]
)

// ActionRow is all that is known of an action by its name; what is not said is no.
type ActionRow struct {
	name   Action
	form   string // in a rule: "signal=SIG"
	says   string // a sentence, for manual and reference
	former bool   // of records of former versions; no rule has it
	// arg reads what stands behind the "=": it returns it as a rule prints it, or why it is
	// wrong and what to write. Without it nothing may stand there.
	arg func(arg string, given bool) (plain string, bad *RuleError)

	kind kind
	// fits says whether a limit counts what the action gives back; without it every one does.
	fits func(l *Limit) bool
	// worth is the least that it must give back to be worth it where least is asked of
	// others; without it that is enough.
	worth func(l *Limit, least rss.Bytes) rss.Bytes

	Trims    bool // workers drop mapped file pages
	Single   bool // it acts on one worker, and the next one's turn may come at once
	Unmaps   bool // it gives back what others may have mapped too: of PSS only the next reading tells how much
	BacksOff bool // trainers stand still for it: where it finds nothing it is tried less and less often
	Ends     bool // it ends the job
	Routine  bool // a record has many of it, and loses those first where it has no room

	Command string // what asks for it by hand: "rsswarden recycle", POST /v1/recycle; empty where nothing does
	Asked   string // what was done to a process by that command: "recycled"

	Thing  string // what is counted of it: "trim"
	Did    string // a line's words for it in the past tense: "collected garbage"
	noHelp string // why it does not lower a limit, see [Action.Why]
	// DidTo are its words in the past tense where the outcome has a detail; name is the
	// action with its argument.
	DidTo func(name, arg, detail string) string
}

// actions are from mild to hard, in the order of the documentation.
var actions = []ActionRow{
	{name: ActionWarn, form: "warn", kind: tells,
		says:  "A line on stderr, and an alert to the receivers of --alert.",
		Thing: "warning"},
	{name: ActionTrim, form: "trim", kind: frees, Trims: true, Unmaps: true, Routine: true,
		says:    "Workers drop mapped file pages, which stay in the page cache.",
		fits:    countsMapped,
		worth:   func(l *Limit, least rss.Bytes) rss.Bytes { return min(least, max(MinRecycle(l), surelyLeft(l))) },
		Command: "trim", Asked: "trimmed",
		Thing: "trim", Did: "trimmed workers", noHelp: "mapped pages do not count in this limit"},
	{name: ActionTrimDrop, form: "trim+drop", kind: frees, Trims: true, former: true,
		says: "Of former versions: trim, and the pages left the page cache."},
	{name: ActionRecycle, form: "recycle", kind: frees, Single: true, Unmaps: true, Routine: true,
		says:    "A loader worker is replaced by a fresh one, and no batch is lost.",
		fits:    countsWorkers,
		worth:   func(l *Limit, _ rss.Bytes) rss.Bytes { return MinRecycle(l) },
		Command: "recycle", Asked: "recycled",
		Thing: "recycle", Did: "recycled worker", noHelp: "memory of workers does not count in this limit"},
	{name: ActionGC, form: "gc", kind: frees, BacksOff: true,
		says:    "Trainers and workers collect garbage and give free memory back.",
		fits:    countsAnon,
		Command: "gc", Asked: "collected",
		Thing: "garbage collection", Did: "collected garbage", noHelp: "anonymous memory does not count in this limit"},
	{name: ActionSignal, form: "signal=SIG", kind: asks, arg: signalArg,
		says:    "Trainers that catch SIG are sent it; SIG@rank0 asks rank 0 alone.",
		Command: "checkpoint", Asked: "asked to checkpoint",
		Thing: "signal",
		DidTo: func(_, arg, to string) string { return strings.TrimSuffix(arg, rank0Suffix) + " sent to " + to }},
	{name: ActionExec, form: "exec=COMMAND", kind: asks, arg: commandArg,
		says:  "Run a program of yours, with the decision on its standard input and in RSSWARDEN_ variables.",
		Thing: "exec command",
		DidTo: func(name, _, said string) string { return name + ": " + said }},
	{name: ActionRequeue, form: "requeue, requeue=MORE", Ends: true, arg: moreArg,
		says:  "The job goes back into the queue and starts again with more memory: requeue=+50%.",
		Thing: "requeue", Did: "requeued",
		DidTo:  func(_, _, how string) string { how, _, _ = strings.Cut(how, "; "); return "requeued " + how },
		noHelp: "more memory for the job does not raise this limit"},
	{name: ActionStop, form: "stop", Ends: true,
		says:  "TERM, and KILL after --grace.",
		Thing: "stop", Did: "stopped the command"},
}

// Actions lists every action of a rule, from mild to hard, and RecordedActions those
// that a record may have, of former versions too.
var (
	RecordedActions = listed(actions, func(r *ActionRow) Action { return r.name })
	Actions         = slices.DeleteFunc(slices.Clone(RecordedActions), func(a Action) bool { return a.row().former })
)

// noAction is what is taken for granted of an action that a newer version recorded.
var noAction ActionRow

func (a Action) row() *ActionRow {
	for i := range actions {
		if actions[i].name == a {
			return &actions[i]
		}
	}
	return &noAction
}

// Row is what is known of the action.
func (a Action) Row() ActionRow { return *a.row() }

// Form is how the action is written in a rule: "signal=SIG".
func (a Action) Form() string { return a.row().form }

// Says is what the action does, for people.
func (a Action) Says() string { return a.row().says }

// Asks says whether an action only asks another program: the trainer, or a
// program of the user's. It frees nothing by itself, so it is done once for a
// crossing, is over when it was done, and nothing waits for what comes of it.
func (a Action) Asks() bool { return a.row().kind == asks }

// Acts says whether an action does something to what is watched: others wait for its end.
func (a Action) Acts() bool { k := a.row().kind; return k == acts || k == frees }

// Frees says whether an action gives memory of processes back. It may be tried again
// although its rung was not left: it may find more to give later.
func (a Action) Frees() bool { return a.row().kind == frees }

// Severity orders actions from mild to hard.
func (a Action) Severity() int {
	i := slices.Index(RecordedActions, a)
	if i < 0 {
		return len(RecordedActions)
	}
	return i
}

// Skipped is an action that was not tried, in the words of a line: "trim skipped", or
// "signal=USR1 skipped".
func (a Action) Skipped(arg string) string {
	if a == ActionSignal {
		return string(a) + "=" + arg + " skipped"
	}
	return string(a) + " skipped"
}

func signalArg(arg string, _ bool) (plain string, bad *RuleError) {
	name, to, named := strings.Cut(arg, "@")
	sig, bad := parseSignal(name)
	switch {
	case bad != nil:
		return arg, bad
	case named && "@"+to != rank0Suffix:
		return arg, wrong(arg, "unknown receiver", "behind the signal may stand "+rank0Suffix+" and nothing else")
	case uncatchable(sig):
		return arg, wrong(arg, "no process can catch this signal", "to end the job write stop; to ask for a checkpoint write signal=USR2")
	}
	return SignalName(sig) + arg[len(name):], nil
}

func commandArg(arg string, _ bool) (plain string, bad *RuleError) {
	const write = "write exec=COMMAND, such as exec=/home/me/notify.sh"
	switch {
	case arg == "":
		bad = wrong(arg, "no command", write)
	case strings.ContainsRune(arg, 0):
		bad = wrong(arg, "the command has a NUL byte in it", write)
	}
	return arg, bad
}

func moreArg(arg string, given bool) (plain string, bad *RuleError) {
	if given && arg == "" {
		return arg, wrong(arg, "nothing behind the =", requeueHint)
	}
	_, plain, bad = parseMore(arg)
	return plain, bad
}

// Ask is a rule on a limit whose action may be wanted.
type Ask struct {
	Rule Rule
	On   LimitID
}

// Feasibility says what the action of a rule could do for a limit now.
type Feasibility struct {
	OK bool `json:"ok,omitempty"` // it could help
	// Gain estimates how much of the limit's Used the action could give back,
	// 0 where it is not known.
	Gain rss.Bytes `json:"gain,omitempty"`
	// AtLeast says that Gain is a lower bound only: small, it is no reason not to act.
	AtLeast bool `json:"at_least,omitempty"`
	// Reason and Detail say why not, where OK is false.
	Reason Reason `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Later says that it will be known in a moment: there is nothing to say yet.
	Later bool `json:"later,omitempty"`
}

// Fits says whether a limit counts what the action gives back. It is the one place that
// decides: a run asks it before anything else, and doctor and limits print it.
func (a Action) Fits(l *Limit) Feasibility {
	if fits := a.row().fits; fits != nil && !fits(l) {
		return Feasibility{Reason: ReasonNoHelp, Detail: a.Why(ReasonNoHelp)}
	}
	return Feasibility{OK: true}
}

// countsMapped: a page of a mapped file stays in the page cache when a process drops it, so
// RSS and PSS of the process fall. A cgroup's charge and the node's use stay, and noshared
// never had it.
func countsMapped(l *Limit) bool {
	return l.Accounting == AccountingRSS || l.Accounting == AccountingPSS
}

func countsWorkers(l *Limit) bool { return l.Name.Memory() }

func countsAnon(l *Limit) bool { return l.Name.Memory() && l.Accounting != AccountingVirtual }
