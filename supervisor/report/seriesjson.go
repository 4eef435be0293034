package report

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text" // text is a type here
)

// The JSON of a timeline is what the page's script reads. Times are in ms since
// the timeline's start. A column begins with its unit in KiB; what follows is the
// difference of each value from the one before it, and null and a number stand
// for so many values that do not differ. So a day fits, and stays plain text.

// MarshalJSON writes what the page's script reads.
func (t *Timeline) MarshalJSON() ([]byte, error) {
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
		r := run{ID: clean(s.ID), Name: s.Name, From: s.From.Milliseconds(), To: s.To.Milliseconds(), Journal: s.JournalOnly, Live: s.Live,
			Roles: []string{}, Limits: []limitJSON{}, Marks: []markJSON{}, Procs: []traceJSON{}}
		for _, b := range s.Roles {
			r.Roles = append(r.Roles, string(b.Role))
		}
		for k := range s.Limits {
			r.Limits = append(r.Limits, newLimitJSON(&s.Limits[k]))
		}
		levels := []byte{'['}
		for k := range s.Levels {
			if k > 0 {
				levels = append(levels, ',')
			}
			levels = appendLevel(levels, &s.Levels[k])
		}
		r.Levels = append(levels, ']')
		for k := range s.Marks {
			m := &s.Marks[k]
			action := ""
			if d, ok := m.Event.(*event.Decision); ok {
				action = clean(string(d.Action))
			}
			r.Marks = append(r.Marks, markJSON{m.At.Milliseconds(), m.Kind, action, clean(happened(m)), clean(cameOf(m)), m.OK()})
		}
		for k := range s.Procs {
			r.Procs = append(r.Procs, newTraceJSON(&s.Procs[k]))
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
	At     int64    `json:"t"`
	Kind   MarkKind `json:"kind"`
	Action string   `json:"action,omitempty"`
	Text   string   `json:"text"`
	Result string   `json:"result,omitempty"`
	OK     bool     `json:"ok,omitempty"`
}

type traceJSON struct {
	PID  int             `json:"pid"`
	Name string          `json:"name"`
	Role string          `json:"role"`
	From int64           `json:"from"`
	Step int64           `json:"step"`
	RSS  json.RawMessage `json:"rss"`
}

func newLimitJSON(l *Against) limitJSON {
	return limitJSON{clean(limitTitle(&l.Limit)), usedMeans(&l.Limit), clean(l.Enforcer), l.Primary}
}

func newTraceJSON(t *Trace) traceJSON {
	return traceJSON{
		t.Proc.ID.PID, clean(t.Proc.Comm), string(bandOf(&t.Proc)),
		t.From.Milliseconds(), t.Step.Milliseconds(), appendColumn(nil, t.RSS, true),
	}
}

func appendLevel(b []byte, l *Level) []byte {
	b = append(b, `{"from":`...)
	b = strconv.AppendInt(b, l.From.Milliseconds(), 10)
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, l.Step.Milliseconds(), 10)
	b = append(b, `,"stretches":[`...)
	for i, s := range l.Stretches {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(s.First), 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, int64(s.Count), 10)
	}
	b = append(b, `],"bands":[`...)
	for i := range l.Bands {
		x := &l.Bands[i]
		b = appendTable(b, i, []string{"anon", "file", "shmem", "count"}, x.Anon, x.File, x.Shmem, x.Count)
	}
	b = append(b, `],"limits":[`...)
	for i := range l.Limits {
		x := &l.Limits[i]
		b = appendTable(b, i, []string{"used", "low", "most", "charged", "working", "size"},
			x.Used, below(x.Used, x.Low), below(x.Most, x.Used), x.Charged, x.Working, x.Size)
	}
	return append(b, "]}"...)
}

// below returns by how much low is below high. Low and the upper bound are told
// that way: mostly they are what "used" is, and nothing but that repeats.
func below(high, low []int64) []int64 {
	out := make([]int64, len(high))
	for i := range high {
		out[i] = max(0, high[i]-low[i])
	}
	return out
}

// appendTable puts named columns.
func appendTable(b []byte, i int, names []string, columns ...[]int64) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	b = append(b, '{')
	for k, name := range names {
		if k > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
		b = appendColumn(b, columns[k], name != "count")
	}
	return append(b, '}')
}

// appendColumn puts one column. Where it is coarse, as sizes are, its unit is the
// largest that still tells 65,000 steps: three digits are shown.
func appendColumn(b []byte, column []int64, coarse bool) []byte {
	b = append(b, '[')
	unit := int64(1)
	if coarse {
		top := int64(0)
		for _, v := range column {
			top = max(top, v)
		}
		for top/unit > 1<<17 {
			unit *= 2
		}
	}
	b = strconv.AppendInt(b, unit, 10) // first the unit
	last, same := int64(0), 0
	flush := func() {
		switch {
		case same == 0:
		case same < 4:
			for range same {
				b = append(b, ",0"...)
			}
		default:
			b = append(b, ",null,"...)
			b = strconv.AppendInt(b, int64(same), 10)
		}
		same = 0
	}
	for _, v := range column {
		if v >= 0 {
			v = (v + unit/2) / unit
		}
		if v == last {
			same++
			continue
		}
		flush()
		b = append(b, ',')
		b = strconv.AppendInt(b, v-last, 10)
		last = v
	}
	flush()
	return append(b, ']')
}

// clean is [values.Plain], shorter for what stands in nearly every line.
func clean(s string) string { return values.Plain(s) }

// zoneName tells the clock of a page: "UTC", "UTC+02:00".
func zoneName(t time.Time) string {
	if _, offset := t.Zone(); offset != 0 {
		return "UTC" + t.Format("-07:00")
	}
	return "UTC"
}
