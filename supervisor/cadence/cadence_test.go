package cadence

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

func TestPause(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		what     string
		headroom rss.Bytes
		rate     rss.Bytes
		want     time.Duration
	}{
		{"far away", 100 * rss.GiB, 0, time.Second},
		{"where the burst of the goal begins", 4 * rss.GiB, 0, time.Second},
		{"nearer", 2*rss.GiB - 64*rss.MiB, 0, ms(500)},
		{"at the rung, nothing seen", 0, 0, time.Duration(15.625 * float64(time.Millisecond))},
		{"at the rung, growing", 0, rss.MiB, MinPause},
		{"slow growth", 64 * rss.MiB, 100 * rss.KiB, time.Duration(31.25 * float64(time.Millisecond))},
		{"a gigabyte a second", 100 * rss.MiB, 2500 * rss.MiB, ms(20)},
		{"at any rate", rss.MiB, 64 * rss.GiB, MinPause},
	} {
		if got := Pause(c.headroom, float64(c.rate), time.Second); got.Truncate(time.Microsecond) != c.want.Truncate(time.Microsecond) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	if got := Pause(100*rss.GiB, 0, time.Microsecond); got != MinPause {
		t.Errorf("an interval below %v gives %v", MinPause, got)
	}
}

// A burst is met within what it fills in one shortest pause, wherever in the
// long pause before it begins.
func TestBurstIsMet(t *testing.T) {
	const perSecond = float64(rss.GiB)
	for begin := time.Duration(0); begin < time.Second; begin += 37 * time.Millisecond {
		rung := 8 * rss.GiB
		used := func(at time.Duration) rss.Bytes {
			return 4*rss.GiB + rss.Bytes(perSecond*max(0, (at-10*time.Second-begin).Seconds()))
		}
		var r rss.Rate
		ticks, now := 0, time.Duration(0)
		for ; used(now) < rung; ticks++ {
			r.Add(now, used(now))
			now += Pause(rung-used(now), r.PerSecond(now), time.Second)
		}
		if over := used(now) - rung; over > 4*rss.MiB {
			t.Errorf("burst %v into the pause: seen %v over the rung", begin, over)
		}
		if ticks > 100 {
			t.Errorf("burst %v into the pause: %d readings", begin, ticks)
		}
	}
}

// at is what a Pace looks at that has these limits, of which the first is watched.
func at(now time.Duration, limits ...Limit) *Input {
	return &Input{Now: now, Limits: limits, Flight: -1, Wake: Never}
}

// left is a limit of 32 GiB of which so much is left.
func left(b rss.Bytes) Limit {
	return Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Limit: 32 * rss.GiB, Left: b, Headroom: b}
}

// each returns a meter of what takes so long.
func each(d time.Duration) (m rss.Meter) {
	m.Add(d)
	return m
}

func TestFullPause(t *testing.T) {
	const far = 32 * rss.GiB
	other := func(acct event.Accounting, name event.LimitName, rest rss.Bytes) *Input {
		l := left(rest)
		l.Accounting, l.Name = acct, name
		return at(0, left(far), l)
	}
	for name, c := range map[string]struct {
		in     func(*Input)
		of     *Input
		unseen bool
		want   time.Duration
	}{
		"nothing goes on":              {want: time.Second},
		"an action has begun":          {in: func(in *Input) { in.Flight = 0 }, want: BusyPause},
		"… long ago":                   {in: func(in *Input) { in.Flight = 800 * time.Millisecond }, want: 100 * time.Millisecond},
		"… a minute ago":               {in: func(in *Input) { in.Flight = time.Minute }, want: Busiest},
		"loaders are looked for":       {in: func(in *Input) { in.Unheard = true }, want: LoaderPause},
		"ptrace":                       {in: func(in *Input) { in.Traced, in.Took = true, time.Millisecond }, want: TracedPause},
		"ptrace, many processes":       {in: func(in *Input) { in.Traced, in.Took = true, 10*time.Millisecond }, want: 500 * time.Millisecond},
		"a reading was not used yet":   {unseen: true, want: 200 * time.Millisecond},
		"another counts otherwise":     {of: other(event.AccountingCgroup, event.LimitCgroup, 64*rss.MiB), want: otherPause},
		"another counts alike":         {of: other(event.AccountingRSS, event.LimitSlurm, far+1), want: time.Second},
		"another counts alike, nearer": {of: other(event.AccountingRSS, event.LimitSlurm, 64*rss.MiB), want: otherPause},
		"a throttle ends nothing":      {of: other(event.AccountingCgroup, event.LimitThrottle, 0), want: time.Second},
		"a number is read elsewhere":   {of: other("", event.LimitMaps, 0), want: time.Second},
	} {
		p := Pace{Interval: time.Second, Full: each(10 * time.Millisecond), unseen: c.unseen}
		in := c.of
		if in == nil {
			in = at(0, left(far))
		}
		if c.in != nil {
			c.in(in)
		}
		if got := p.FullPause(in); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFastFloor: what fast reads take bounds how often they are, by whether anything grows.
func TestFastFloor(t *testing.T) {
	for name, c := range map[string]struct {
		rate    float64
		stopped bool
		name    event.LimitName
		want    time.Duration
	}{
		"nothing grows":                {want: 200 * time.Millisecond},
		"full within the interval":     {rate: float64(rss.GiB), want: 20 * time.Millisecond},
		"all are stopped":              {stopped: true, want: StoppedPause},
		"… but others fill the node's": {stopped: true, name: event.LimitNode, want: 200 * time.Millisecond},
	} {
		l := left(1)
		l.PerSecond = c.rate
		if c.name != "" {
			l.Name = c.name
		}
		in := at(0, l)
		in.Stopped = c.stopped
		p := Pace{Interval: time.Second, Fast: each(2 * time.Millisecond)}
		if got := p.Next(in); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestOtherWakesPutNothingOff: when memory is read next is decided once.
func TestOtherWakesPutNothingOff(t *testing.T) {
	p := Pace{Interval: time.Second}
	p.Holder(0, HolderEvery)
	in := at(0, left(2*rss.GiB-64*rss.MiB)) // 500 ms
	for now := time.Duration(0); now < 500*time.Millisecond; now += 100 * time.Millisecond {
		in.Now, in.Wake = now, 100*time.Millisecond
		if got := p.Next(in); got != 100*time.Millisecond {
			t.Fatalf("at %v the loop waits %v for what is due in 100 ms", now, got)
		}
		if p.Due(now) {
			t.Errorf("memory is read at %v", now)
		}
	}
	if in.Now, in.Wake = 490*time.Millisecond, Never; p.Next(in) != 10*time.Millisecond || !p.Due(500*time.Millisecond) {
		t.Error("the read at 500 ms was put off")
	}
	p.Again()
	if got := p.Next(in); got != 500*time.Millisecond {
		t.Errorf("after a read %v, want 500 ms", got)
	}
}

// TestHolderIsLookedAfter in the wake of a read that is near enough, else in one of its own.
func TestHolderIsLookedAfter(t *testing.T) {
	p := Pace{Interval: time.Hour, Tolerance: 50 * time.Millisecond}
	if got := p.Next(at(0, left(32*rss.GiB))); got != HolderEvery {
		t.Errorf("a wake in %v, want one for the holder", got)
	}
	p.Again()
	if in := at(0, left(4*rss.GiB+64*rss.MiB)); p.Next(in) != 1031250*time.Microsecond {
		t.Errorf("a wake in %v, want none for the holder right before a read", p.Next(in))
	}
	if p.Holder(900*time.Millisecond, HolderEvery) || !p.Holder(960*time.Millisecond, HolderEvery) || p.Holder(970*time.Millisecond, HolderEvery) {
		t.Error("the holder is not looked after each second")
	}
}

// TestRest: memory is read less often where nothing has grown for a minute, no process has
// begun, and half of every limit is free; not where many could fill what is left meanwhile.
func TestRest(t *testing.T) {
	limit := event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 4 * rss.GiB, UsedMax: 4 * rss.GiB, Limit: 64 * rss.GiB}
	look := func(used rss.Bytes, newest uint64, procs int) *view.View {
		l := limit
		l.Used = used
		s := rss.Sample{Procs: make([]rss.Proc, procs)}
		s.Procs[0].ID = rss.ProcID{PID: 7, Start: newest}
		return new(view.View).Next(0, s, []event.Limit{l})
	}
	calm := look(4*rss.GiB, 5, 4)
	for name, c := range map[string]struct {
		then  *view.View // read 30 s before the last look
		after time.Duration
		left  rss.Bytes
		used  rss.Bytes
		rate  float64
		want  time.Duration
	}{
		"nothing has grown":               {want: restPause},
		"half a minute after the start":   {after: 30 * time.Second, want: time.Second},
		"it has grown a little":           {then: look(4*rss.GiB+limit.Limit/100-1, 5, 4), want: restPause},
		"it has grown":                    {then: look(4*rss.GiB+limit.Limit/100, 5, 4), want: time.Second},
		"a process has begun":             {then: look(4*rss.GiB, 6, 5), want: time.Second},
		"one has ended":                   {then: look(4*rss.GiB, 5, 3), want: restPause},
		"half of it is used":              {used: 33 * rss.GiB, want: time.Second},
		"a burst could fill what is left": {left: 12*rss.GiB - burstSlack, want: 3 * time.Second},
		"… 32 processes at once":          {then: look(4*rss.GiB, 5, 32), left: 32*rss.GiB - 4*burstSlack, want: 2 * time.Second},
		"growth is not forgotten yet":     {rate: float64(8 * rss.GiB), want: 2 * time.Second},
	} {
		p := Pace{Interval: time.Second, Processors: 32}
		p.Read(0, calm)
		now := cmp.Or(c.after, 2*time.Minute)
		if c.then != nil {
			p.Read(now-30*time.Second, c.then)
		}
		p.Read(now, cmp.Or(c.then, calm))
		l := left(cmp.Or(c.left, 32*rss.GiB))
		l.Limit, l.Used, l.PerSecond = limit.Limit, c.used, c.rate
		in := at(now, l)
		p.Holder(now, 0)
		if got := p.Next(in); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := p.HolderEvery(in); got != max(c.want, HolderEvery) {
			t.Errorf("%s: the holder is looked after each %v, want %v", name, got, c.want)
		}
	}
}

// TestHintsAndReadings: where full reads are expensive, neither the kernel's hints nor a
// reading of PSS cause more of them than their budget.
func TestHintsAndReadings(t *testing.T) {
	p := Pace{Interval: time.Second, Full: each(5 * time.Millisecond)}
	p.Read(time.Second, &view.View{})
	for d, want := range map[time.Duration]bool{200 * time.Millisecond: false, 250 * time.Millisecond: true} {
		if got := p.Hint(time.Second + d); got != want {
			t.Errorf("a hint after %v: %v", d, got)
		}
	}
	if p.Hurry(time.Second+90*time.Millisecond) || !p.Hurry(time.Second+100*time.Millisecond) {
		t.Error("a reading causes more full reads than 5 % of a core")
	}
	if in := at(time.Second, left(32*rss.GiB)); p.FullPause(in) != 100*time.Millisecond {
		t.Errorf("the next full read comes after %v, want 100 ms", p.FullPause(in))
	}
	p.Read(2*time.Second, &view.View{})
	if in := at(2*time.Second, left(32*rss.GiB)); p.FullPause(in) != time.Second {
		t.Errorf("after that one the next comes after %v", p.FullPause(in))
	}
}

// tenths has limits judged again at each tenth, and traces for what counts as rss.
type tenths struct{}

func (tenths) Next(l *event.Limit, used rss.Bytes) rss.Bytes {
	return used - used%(l.Limit/10) + l.Limit/10
}
func (tenths) TracesFor(l *event.Limit) bool { return l.Accounting == event.AccountingRSS }

// TestInput: of the watched limit what was left at the full read decides, and what is left
// now; of the others what is left now.
func TestInput(t *testing.T) {
	limits := []event.Limit{
		{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 25, UsedMax: 25, Limit: 100, Binding: true},
		{Name: event.LimitSlurm, Accounting: event.AccountingPSS, Used: 25, UsedMax: 41, Limit: 100},
	}
	v := new(view.View).Next(0, rss.Sample{Took: time.Millisecond}, limits)
	moved := limits[0]
	moved.Used = 28
	v = v.Fast(time.Second, &moved)
	var p Pace
	for range 2 { // it is used again
		in := p.Input(time.Second, v, tenths{})
		want := []Limit{
			{Name: event.LimitUser, Accounting: event.AccountingRSS, Limit: 100, Used: 28, Left: 5, Headroom: 2, PerSecond: 3},
			{Name: event.LimitSlurm, Accounting: event.AccountingPSS, Limit: 100, Used: 41, Left: 9},
		}
		if !slices.Equal(in.Limits, want) || in.Watched != 0 || !in.Traced || in.Took != time.Millisecond || in.Flight >= 0 || in.Wake != Never {
			t.Errorf("%+v", in)
		}
		in.Flight, in.Unheard, in.Wake = 1, true, 1
	}
}
