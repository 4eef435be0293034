// Package settings has what a user chose for one run, as checked values that every part reads.
package settings

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Settings is what a user chose for one run, checked already. The holder hands
// it to the watcher as JSON, in which all fields are at the top.
type Settings struct {
	Run
	Policy
	Outputs
	Alerting
	Log
	// Origins lists every option with its value and where that came from.
	Origins []event.Setting `json:"origins"`
	// Warnings are what the holder met before the command began, told by the
	// watcher as its first lines.
	Warnings []string `json:"warnings,omitempty"`
}

// Run is what runs, and what its record knows it by.
type Run struct {
	Command []string `json:"command"`
	Version string   `json:"version"` // of rsswarden
	// RunID names the run; without it nothing is recorded. Begun is when it began, BegunMono
	// the same by CLOCK_MONOTONIC: the other clock may be set before a watcher is started
	// again.
	RunID     string        `json:"run_id,omitempty"`
	Begun     time.Time     `json:"begun,omitzero"`
	BegunMono time.Duration `json:"begun_mono,omitempty"`
	Interval  time.Duration `json:"interval"` // longest pause between two samples
}

// Policy is the user's own limit, when something is done about limits, and what.
type Policy struct {
	UserLimit
	// Rules is the ladder, from mild to hard, defaults included.
	Rules      []event.Rule  `json:"rules"`
	DryRun     bool          `json:"dry_run,omitempty"`
	StopStatus int           `json:"stop_status"`
	Grace      time.Duration `json:"grace"`
	Workers
	Requeue
}

// UserLimit is --limit, in bytes or as a share (0.8 for 80%) of the limit that is found; both
// are 0 where the user gave none.
type UserLimit struct {
	Limit       rss.Bytes        `json:"limit,omitempty"`
	LimitShare  float64          `json:"limit_share,omitempty"`
	LimitSource string           `json:"limit_source,omitempty"` // where the user wrote it, for people
	Accounting  event.Accounting `json:"accounting"`
}

// Workers are how workers of loaders and pools are reached, and what is done to them.
type Workers struct {
	// Loader says that loaders are to be talked to.
	Loader bool `json:"loader"`
	// Forks says that pool workers are recycled too where it may hang their pool: one that
	// forks beside its threads, or whose initializer hands something out.
	Forks bool `json:"forks,omitempty"`
	// Dir is the run directory that loader hooks talk through; empty where that
	// is off or the directory could not be made.
	Dir  string   `json:"dir,omitempty"`
	Trim TrimMode `json:"trim"`
	// TrimPrivate adds read-only private file mappings to what workers trim.
	TrimPrivate bool `json:"trim_private,omitempty"`
	// OOMPrefer has the kernel's OOM killer choose workers first.
	OOMPrefer bool `json:"oom_prefer,omitempty"`
	// Revive says whose work is done again where loader workers die.
	Revive event.Revive `json:"revive,omitempty"`
	// NoFile is up to how many descriptors the loader hook may raise RLIMIT_NOFILE of a
	// process that will need them, 0 for none.
	NoFile       int    `json:"nofile,omitempty"`
	WorkerSignal int    `json:"worker_signal,omitempty"`
	WorkerMatch  string `json:"worker_match,omitempty"`
}

// Revives says that dead workers are to be replaced.
func (w *Policy) Revives() bool {
	return (w.Revive == event.ReviveOOM || w.Revive == event.ReviveAny) && !w.DryRun
}

// Requeue is how a job is put back into the queue.
type Requeue struct {
	// CheckpointSignal asks the trainer for a checkpoint before it, as
	// signal= would: "USR2@rank0"; empty for none. Its end is that of the command,
	// or that CheckpointFile was written, or CheckpointTimeout.
	CheckpointSignal  string        `json:"checkpoint_signal,omitempty"`
	CheckpointFile    string        `json:"checkpoint_file,omitempty"`
	CheckpointTimeout time.Duration `json:"checkpoint_timeout,omitempty"`
	// MaxRequeues is how often a job is started again at most.
	MaxRequeues int `json:"max_requeues,omitempty"`
}

// Outputs are the files that a run writes.
type Outputs struct {
	Events string `json:"events,omitempty"`
	// Textfile is the directory in which node_exporter looks for files of metrics, its
	// full path; empty for none. TextfileFault is why no file can be kept there at the
	// start, which was told.
	Textfile      string `json:"textfile,omitempty"`
	TextfileFault string `json:"textfile_fault,omitempty"`
	// Record is where the full record goes: RecordAuto, RecordNone, or a directory for it.
	// RecordFault is why none can be kept in that directory, which was told: then there is
	// a journal alone.
	Record      string `json:"record,omitempty"`
	RecordFault string `json:"record_fault,omitempty"`
}

// Alerting is who gets alerts, and how.
type Alerting struct {
	Alerts []alert.Target `json:"alerts,omitempty"`
	// AlertProgram is what carries them; the token goes along, from here or the file.
	AlertProgram   string `json:"alert_program,omitempty"`
	AlertToken     string `json:"alert_token,omitempty"`
	AlertTokenFile string `json:"alert_token_file,omitempty"`
	// AlertComment has the job's comment written.
	AlertComment bool `json:"alert_comment,omitempty"`
}

// Log is how lines on stderr look.
type Log struct {
	// BySite says that the site started the run, and not the user. Short says that of a quiet
	// run its end is told, where something happened.
	BySite    bool   `json:"by_site,omitempty"`
	Short     bool   `json:"short,omitempty"`
	Quiet     bool   `json:"quiet,omitempty"`
	LogFormat string `json:"log_format"`      // console, json
	Color     string `json:"color,omitempty"` // auto, always, never
}

// The values of --record that are no directory.
const (
	RecordAuto = "auto" // where it is fit, once there is something to record
	RecordNone = "none"
)

// TrimMode is how mapped file pages are dropped: the value of --trim.
type TrimMode string

// The values of --trim.
const (
	TrimHook   TrimMode = "hook"   // by the loader hook, where that is
	TrimAuto   TrimMode = "auto"   // … and in workers without it by ptrace
	TrimPtrace TrimMode = "ptrace" // by ptrace alone, in every process of the tree
	TrimOff    TrimMode = "off"
)

// Hook says that processes with the loader hook are asked.
func (m TrimMode) Hook() bool { return m == TrimHook || m == TrimAuto }

// Ptrace says that processes may be stopped for it.
func (m TrimMode) Ptrace() bool { return m == TrimAuto || m == TrimPtrace }

// RulesOfSite says that the rules are those of the site's file, which are for all jobs.
func (s *Settings) RulesOfSite() bool {
	return slices.ContainsFunc(s.Origins, func(o event.Setting) bool { return o.Name == "at" && strings.HasPrefix(o.Origin, "site") })
}

// StartedBySite makes these the settings of a run that the user did not ask for: it recycles no
// worker unless a rule of the site's or the user's says so, and is quiet.
func (s *Settings) StartedBySite() {
	at := ""
	if i := slices.IndexFunc(s.Origins, func(o event.Setting) bool { return o.Name == "at" }); i >= 0 {
		at = s.Origins[i].Value
	}
	s.Rules = slices.DeleteFunc(s.Rules, func(r event.Rule) bool {
		return r.Action.Row().Single && !strings.Contains(at, ":"+string(r.Action))
	})
	s.BySite, s.Short, s.Quiet = true, !s.Quiet, true
}

// RuleTexts are the rules as people write them.
func (p *Policy) RuleTexts() []string {
	texts := make([]string, len(p.Rules))
	for i, r := range p.Rules {
		texts[i] = r.String()
	}
	return texts
}

// Requeues says that one of the rules is a requeue=.
func (p *Policy) Requeues() bool {
	return slices.ContainsFunc(p.Rules, func(r event.Rule) bool { return r.Action == event.ActionRequeue })
}

// Encode returns s in the form that [Decode] reads.
func (s *Settings) Encode() json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		// Every field is a plain value: this cannot happen.
		panic("internal error: settings cannot be encoded: " + err.Error())
	}
	return b
}

// Decode reads what [Settings.Encode] wrote.
func Decode(b []byte) (Settings, error) {
	var s Settings
	err := json.Unmarshal(b, &s)
	return s, err
}
