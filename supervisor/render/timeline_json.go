package render

import (
	"encoding/json"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/chart"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// The JSON of a timeline is what the page's script reads. Times are in ms since
// the timeline's start. A column begins with its unit in KiB; what follows is the
// difference of each value from the one before it, and null and a number stand
// for so many values that do not differ. So a day fits, and stays plain text.

func timelineJSON(t *analysis.Timeline) ([]byte, error) {
	type run struct {
		ID      string          `json:"id"`
		Name    string          `json:"name"`
		From    int64           `json:"from"`
		To      int64           `json:"to"`
		Journal bool            `json:"journal,omitempty"`
		Live    bool            `json:"live,omitempty"`
		Roles   []string        `json:"roles"`
		Limits  []limitJSON     `json:"limits"`
		Levels  json.RawMessage `json:"levels"`
		Marks   []markJSON      `json:"marks"`
		Procs   []traceJSON     `json:"procs"`
	}
	_, zone := t.Start.Zone()
	out := struct {
		Start  int64  `json:"start"` // ms since 1970
		Zone   int    `json:"zone"`  // s east of UTC
		Length int64  `json:"length"`
		Runs   []run  `json:"runs"`
		Clock  string `json:"clock"`
	}{t.Start.UnixMilli(), zone, t.Length.Milliseconds(), []run{}, zoneName(t.Start)}
	for i := range t.Runs {
		s := &t.Runs[i]
		r := run{ID: values.Plain(s.ID), Name: s.Name, From: s.From.Milliseconds(), To: s.To.Milliseconds(), Journal: s.JournalOnly, Live: s.Live,
			Roles: []string{}, Limits: []limitJSON{}, Marks: []markJSON{}, Procs: []traceJSON{}}
		for _, b := range s.Roles {
			r.Roles = append(r.Roles, string(b))
		}
		for k := range s.Limits {
			l := &s.Limits[k]
			r.Limits = append(r.Limits, limitJSON{values.Plain(chart.LimitTitle(l)), chart.UsedMeans(l), values.Plain(l.Enforcer), k == s.Primary})
		}
		levels := []byte{'['}
		for k := range s.Levels {
			if k > 0 {
				levels = append(levels, ',')
			}
			levels = analysis.AppendLevel(levels, &s.Levels[k])
		}
		r.Levels = append(levels, ']')
		for k := range s.Marks {
			m := &s.Marks[k]
			action := ""
			if d, ok := m.Event.(*event.Decision); ok {
				action = values.Plain(string(d.Action))
			}
			r.Marks = append(r.Marks, markJSON{m.At.Milliseconds(), m.Kind, action, values.Plain(chart.Happened(m)), values.Plain(chart.CameOf(m)), m.OK()})
		}
		for k := range s.Procs {
			p := &s.Procs[k]
			r.Procs = append(r.Procs, traceJSON{p.Proc.ID.PID, values.Plain(p.Proc.Comm), string(analysis.LayerOf(&p.Proc)),
				p.From.Milliseconds(), p.Step.Milliseconds(), analysis.AppendColumn(nil, p.RSS, true)})
		}
		out.Runs = append(out.Runs, r)
	}
	return json.Marshal(out)
}

type limitJSON struct {
	Title    string `json:"title"`
	Means    string `json:"means"`
	Enforcer string `json:"enforcer"`
	Primary  bool   `json:"primary,omitempty"`
}

type markJSON struct {
	At     int64             `json:"t"`
	Kind   analysis.MarkKind `json:"kind"`
	Action string            `json:"action,omitempty"`
	Text   string            `json:"text"`
	Result string            `json:"result,omitempty"`
	OK     bool              `json:"ok,omitempty"`
}

type traceJSON struct {
	PID  int             `json:"pid"`
	Name string          `json:"name"`
	Role string          `json:"role"`
	From int64           `json:"from"`
	Step int64           `json:"step"`
	RSS  json.RawMessage `json:"rss"`
}

// zoneName tells the clock of a page: "UTC", "UTC+02:00".
func zoneName(t time.Time) string {
	if _, offset := t.Zone(); offset != 0 {
		return "UTC" + t.Format("-07:00")
	}
	return "UTC"
}
