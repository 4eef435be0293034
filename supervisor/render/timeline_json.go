package render

import (
	"encoding/json"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/chart"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// timelineJSON is what the page's script reads. Times are in ms since the timeline's start.
func timelineJSON(t *analysis.Timeline) ([]byte, error) {
	type run struct {
		ID     string           `json:"id"`
		Name   string           `json:"name"`
		From   int64            `json:"from"`
		To     int64            `json:"to"`
		Roles  []string         `json:"roles"`
		Stack  []int            `json:"stack"` // the bands of a stack under no limit
		Limits []limitJSON      `json:"limits"`
		Levels []analysis.Level `json:"levels"`
		Marks  []markJSON       `json:"marks"`
		Trims  trimsJSON        `json:"trims"`
		Procs  []traceJSON      `json:"procs"`
	}
	_, zone := t.Start.Zone()
	out := struct {
		Start  int64  `json:"start"` // ms since 1970
		Zone   int    `json:"zone"`  // s east of UTC
		Length int64  `json:"length"`
		Runs   []run  `json:"runs"`
		Clock  string `json:"clock"`

		Glyphs map[string]string `json:"glyphs"`
		Rungs  []float64         `json:"rungs"`
	}{t.Start.UnixMilli(), zone, t.Length.Milliseconds(), []run{}, zoneName(t.Start), chart.Glyphs, chart.Rungs[:]}
	for i := range t.Runs {
		s := &t.Runs[i]
		r := run{ID: values.Plain(s.ID), Name: s.Name, From: s.From.Milliseconds(), To: s.To.Milliseconds(),
			Roles: []string{}, Stack: stackOf(s, -1), Limits: []limitJSON{}, Marks: []markJSON{}, Procs: []traceJSON{}, Trims: trimsOf(s), Levels: s.Levels}
		for _, b := range s.Roles {
			r.Roles = append(r.Roles, string(b))
		}
		for k := range s.Limits {
			l := &s.Limits[k]
			r.Limits = append(r.Limits, limitJSON{values.Plain(chart.LimitTitle(l)), chart.UsedMeans(l), k == s.Primary, stackOf(s, k)})
		}
		for k := range s.Marks {
			m := &s.Marks[k]
			r.Marks = append(r.Marks, markJSON{m.At.Milliseconds(), m.Kind, values.Plain(string(m.Action())), chart.Glyph(m), m.Refused(), chart.Weight(m),
				values.Plain(chart.Happened(m)), values.Plain(chart.CameOf(m))})
		}
		for k := range s.Procs {
			p := &s.Procs[k]
			r.Procs = append(r.Procs, traceJSON{p.Proc.ID.PID, values.Plain(p.Proc.Comm), string(analysis.LayerOf(&p.Proc)),
				p.From.Milliseconds(), p.Last.Milliseconds(), p.PeakAt.Milliseconds(), p.Peak, p.Anon, p.File, p.Shmem,
				p.Step.Milliseconds(), p.RSS})
		}
		out.Runs = append(out.Runs, r)
	}
	return json.Marshal(out)
}

type limitJSON struct {
	Title   string `json:"title"`
	Means   string `json:"means"`
	Primary bool   `json:"primary,omitempty"`
	Stack   []int  `json:"stack"` // indices of roles
}

// stackOf is the bands in the stack under a limit, -1 for none.
func stackOf(s *analysis.RunSeries, limit int) []int {
	list := []int{}
	for i, role := range s.Roles {
		if s.Stacks(limit, role) {
			list = append(list, i)
		}
	}
	return list
}

// trimsJSON is a strip of trims: of each cell its time, a count, and what was dropped in KiB.
type trimsJSON struct {
	Step  int64   `json:"step"`
	Cells []int64 `json:"cells"`
}

func trimsOf(s *analysis.RunSeries) trimsJSON {
	out := trimsJSON{Cells: []int64{}}
	for _, t := range s.Trims {
		out.Step = t.Step.Milliseconds()
		out.Cells = append(out.Cells, t.At.Milliseconds(), int64(t.Count), int64(t.Dropped/rss.KiB))
	}
	return out
}

type markJSON struct {
	At     int64             `json:"t"`
	Kind   analysis.MarkKind `json:"kind"`
	Action string            `json:"action,omitempty"`
	Glyph  string            `json:"glyph"`
	Hollow bool              `json:"hollow,omitempty"` // the action could not help, or did not work
	Weight int               `json:"weight"`           // of marks in one place the greatest is shown
	Text   string            `json:"text"`
	Result string            `json:"result,omitempty"`
}

type traceJSON struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	Role string `json:"role"`
	From int64  `json:"from"`
	To   int64  `json:"to"`
	// Peak is the highest RSS, At when that was, Anon, File and Shmem are its parts.
	At    int64     `json:"peak_at"`
	Peak  rss.Bytes `json:"peak_bytes"`
	Anon  rss.Bytes `json:"anon_bytes"`
	File  rss.Bytes `json:"file_bytes"`
	Shmem rss.Bytes `json:"shmem_bytes"`

	Step int64           `json:"step"`
	RSS  analysis.Column `json:"rss"`
}

// zoneName tells the clock of a page: "UTC", "UTC+02:00".
func zoneName(t time.Time) string {
	if _, offset := t.Zone(); offset != 0 {
		return "UTC" + t.Format("-07:00")
	}
	return "UTC"
}
