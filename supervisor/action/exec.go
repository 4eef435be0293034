package action

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/text"
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
