package supervisor

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// lastPatience is how long such a command may go on when what is watched has
// ended: it may be the one that tells somebody why.
const lastPatience = 700 * time.Millisecond

// programs runs commands and remembers what for. Only the loop uses it.
type programs struct {
	*action.Programs
	told map[uint64]occasionOf
}

type occasionOf struct {
	decision event.Decision
	limit    *event.Limit
}

func newPrograms(start func(*exec.Cmd) error, log tell.Lines) *programs {
	say := func(line string) { log.Info("exec: " + line) }
	return &programs{Programs: action.NewPrograms(start, say), told: map[uint64]occasionOf{}}
}

// exec carries an exec= rule out. Its outcome comes when the command has ended.
func (w *watcher) exec(d event.Decision, l *event.Limit) {
	told := d
	if l != nil {
		c := *l
		told.Reading, l = &c, &c
	}
	line, err := json.Marshal(told)
	if err != nil {
		w.answer(d, l, action.Result{Reason: event.ReasonError, Detail: err.Error()})
		return
	}
	p := action.Program{ID: d.ID, Command: d.Arg, Env: w.environment(&told), Stdin: append(text.JSON(line), '\n')}
	if !w.programs.Run(p) {
		w.answer(d, l, action.Result{Reason: event.ReasonBusy})
		return
	}
	w.programs.told[d.ID] = occasionOf{d, l}
}

// ran says what came of a command.
func (w *watcher) ran(r action.Ran) {
	o, ok := w.programs.told[r.ID]
	if ok {
		delete(w.programs.told, r.ID)
		w.answer(o.decision, o.limit, r.Result)
	}
}

// environment is the user's own, and the decision in variables. docs/rules.md names
// them.
func (w *watcher) environment(d *event.Decision) []string {
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
		"RSSWARDEN_PID=" + strconv.Itoa(w.observe.Pop.Command.PID),
		"RSSWARDEN_LIMIT_PID=" + nearest,
	}
	// As in the events: a number of things is not in bytes. All are there, so that
	// none is left from somebody else and sh -u can do with it.
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
