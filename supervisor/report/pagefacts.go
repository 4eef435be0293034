package report

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// pageFact is one of the few numbers that most readers come for, Meter where its share
// is drawn.
type pageFact struct {
	Name, Value, More string
	Meter             bool
	Share             float64
}

// Width is the share as the meter shows it.
func (f pageFact) Width() string { return fmt.Sprintf("%.1f", 100*min(f.Share, 1)) }

// Facts are those numbers.
func (p *page) Facts() (all []pageFact) {
	fact := func(name, value, more string) { all = append(all, pageFact{Name: name, Value: value, More: more}) }
	if l := nearest(p.Report); l != nil {
		share := l.Ratio()
		all = append(all, pageFact{"Nearest limit: " + string(l.Name), percent(share),
			whereOf(p.Report, l) + fmt.Sprintf("%s of %s, %s", l.Name.Amount(l.Used), l.Name.Amount(l.Limit.Limit), usedMeans(&l.Limit)), true, share})
	}
	if k := p.Peaks.RSS; k != nil {
		fact("Peak RSS", k.Bytes.String(), "sum over processes, at "+p.Clock(k.At))
	}
	if k := p.Peaks.Cgroup; k != nil {
		fact("Peak of the cgroup", k.Bytes.String(), "unreclaimable, at "+p.Clock(k.At))
	} else if k := p.Peaks.PSS; k != nil {
		fact("Peak PSS", k.Bytes.String(), "shared pages divided, at "+p.Clock(k.At))
	}
	fired, freed := 0, rss.Bytes(0)
	for _, a := range p.Actions {
		if a.Action != event.ActionWarn {
			fired, freed = fired+a.Fired, freed+a.Freed
		}
	}
	text := "nothing had to be done"
	if fired > 0 {
		text = "freed " + freed.String() + " in all"
	}
	fact("Actions", fmt.Sprint(fired), text)
	fact("Duration", values.Span(time.Duration(p.Duration*float64(time.Second))), "from "+p.Clock(p.Start)+" to "+p.Clock(p.End))
	return all
}

// whereOf says on which node a limit is, where there are several.
func whereOf(rep *Report, l *Limit) string {
	if len(rep.lastNodes()) < 2 {
		return ""
	}
	return "on " + runOf(rep, l.Run).Node + ", "
}

// nearest is the limit on memory that came nearest, nil where none was read. What
// cannot end a job is not one.
func nearest(rep *Report) *Limit {
	best := -1
	for i := range rep.Limits {
		l := &rep.Limits[i]
		if !l.Name.Row().Amount || l.Name == event.LimitThrottle || l.Limit.Limit == 0 {
			continue
		}
		if best < 0 || l.Ratio() > rep.Limits[best].Ratio() {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return &rep.Limits[best]
}
