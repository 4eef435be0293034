package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// mostMaps is vm.max_map_count as the kernel has it.
const mostMaps = 65530

// mappings gives a process of the made-up tree so many lines of maps.
func (s *stand) mappings(pid, n int) {
	s.fs.Write(fmt.Sprintf("proc/%d/maps", pid), strings.Repeat("m\n", n))
}

// hurried is within what time a process that is about to map much is counted again.
const hurried = 100 * time.Millisecond

// longRest is longer than any pause between two counts.
const longRest = 5 * time.Minute

// recount plays a look that asks for counts, waits for them, and plays the one
// that judges them.
func (s *stand) recount() {
	s.t.Helper()
	s.later(longRest)
	s.full()
	s.settle()
	s.full()
	s.settle()
}

// settle waits for what package counts reads, and takes it in.
func (s *stand) settle() {
	s.t.Helper()
	wardentest.Until(s.t, "counted", func() bool {
		s.observe.Counts.Take(s.now)
		return !s.observe.Counts.Busy()
	})
}

// decisions returns the rules that fired on a limit.
func decisions(all []map[string]any, l event.LimitName) []map[string]any {
	var some []map[string]any
	for _, d := range named(all, event.NameDecision) {
		if d["limit"] == string(l) {
			some = append(some, d)
		}
	}
	return some
}

// TestWarnOfMappings follows one limit on a number through the ladder: one warning
// with the numbers as numbers, none while another process becomes the nearest, and
// a second once it was 5 points below.
func TestWarnOfMappings(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.put(worker1, id.PID, 20*rss.MiB, 0)
	s.fs.Write("proc/sys/vm/max_map_count", fmt.Sprintln(mostMaps))
	at := func(pid int, percent float64) { s.mappings(pid, int(percent/100*mostMaps)) }
	for _, pid := range []int{theCommand, id.PID, worker1} {
		at(pid, 1)
	}
	s.open(s.holder.begin)
	s.settle()
	warned := func(when string, want int) {
		t.Helper()
		s.recount()
		if n := strings.Count(s.stderr(), "memory mappings"); n != want {
			t.Fatalf("%s: %d lines, want %d\n%s", when, n, want, s.stderr())
		}
	}
	warned("at 1 %", 0)
	at(id.PID, 79.9)
	warned("below the rung", 0)
	at(id.PID, 81)
	warned("at 81 %", 1)
	if want := fmt.Sprintf("memory mappings 81 %% of 65,530 in trainer %d\n", id.PID); !strings.Contains(s.stderr(), want) {
		t.Errorf("no %q in\n%s", want, s.stderr())
	}
	at(worker1, 83)
	warned("another is nearest", 1)
	at(id.PID, 84)
	warned("the first is again", 1)
	at(id.PID, 75.5)
	at(worker1, 75.5)
	warned("four points below", 1)
	at(worker1, 82)
	warned("up again", 1)
	at(worker1, 74.5)
	at(id.PID, 74.5)
	s.later(10 * time.Minute)
	warned("five points below", 1)
	at(worker1, 82)
	warned("up from there", 2)
	if want := fmt.Sprintf("in worker %d\n", worker1); !strings.Contains(s.stderr(), want) {
		t.Errorf("no %q in\n%s", want, s.stderr())
	}

	all := s.events()
	list := decisions(all, event.LimitMaps)
	if len(list) != 2 {
		t.Fatalf("decisions %v", list)
	}
	wardentest.Has(t, list[0], "action", "warn", "rule", "maps 80%:warn", "used", 53079.0, "limit_count", float64(mostMaps), "threshold", 52424.0,
		"used_bytes", nil, "limit_bytes", nil, "threshold_bytes", nil)
	found := named(all, event.NameLimit)
	if n := len(slices.DeleteFunc(found, func(e map[string]any) bool { return e["limit"] != "maps" })); n != 1 {
		t.Errorf("%d limit events, want one", n)
	}
}

// TestMappingsAreNotMemory: no rule that gives memory back is tried on a limit on a
// number, and no outcome has bytes that are none.
func TestMappingsAreNotMemory(t *testing.T) {
	rules := []string{"maps 50%:trim", "maps 50%:recycle", "maps 50%:gc", "90%:trim"}
	s := newStand(t, withLoader(t), func(o *Options) {
		o.Settings.Rules = mustRules(rules...)
	})
	id := s.trainer(20*rss.MiB, worker1)
	s.put(worker1, id.PID, 20*rss.MiB, 400*rss.MiB)
	s.fs.Write("proc/sys/vm/max_map_count", "1000\n")
	s.mappings(worker1, 700)
	s.open(s.holder.begin)
	for range 3 {
		s.recount()
	}
	all := s.events()
	if list := named(all, event.NameDecision); len(list) != 0 || s.acts.InFlight() != nil {
		t.Errorf("decisions %v", list)
	}
	reasons := map[string]any{}
	for _, o := range named(all, event.NameOutcome) {
		rule, _, _ := strings.Cut(fmt.Sprint(o["detail"]), ": ")
		if reasons[rule] != nil {
			t.Errorf("%s is reported again", rule)
		}
		reasons[rule] = o["reason"]
		for _, field := range []string{"before_bytes", "after_bytes", "freed_bytes"} {
			if v, has := o[field]; has {
				t.Errorf("%s: %s is %v", rule, field, v)
			}
		}
	}
	for _, rule := range rules[:3] {
		if reasons[rule] == nil || reasons[rule] == "" {
			t.Errorf("%s: refused for no reason; %v", rule, reasons)
		}
	}
	s.told("trim skipped for memory mappings: mapped pages do not count in this limit")
	if s.tell.Sum.Saved.Skipped() != 0 {
		t.Errorf("%d rules of memory skipped", s.tell.Sum.Saved.Skipped())
	}
}

// often from that look on, for half a minute.
func TestPicklingHurries(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.fs.Write("proc/sys/vm/max_map_count", fmt.Sprintln(mostMaps))
	s.mappings(id.PID, 100)
	s.open(s.holder.begin)
	s.settle()
	s.recount()
	if pause, ok := s.observe.Counts.Next(s.now()); ok {
		t.Fatalf("a count is due in %v though nothing is said", pause)
	}
	s.log(id, `"what":"pickling","sharing":{"start_method":"spawn","strategy":"file_system","workers":1,"tensors":80000,"tensor_bytes":25600000,`+
		`"maps_needed":80500,"maps_limit":65530,"fds_needed":20,"fds_limit":1024,"fds_hard_limit":4096}`)
	if !s.poll(true) {
		t.Fatal("what was said asks for no look")
	}
	s.full()
	s.settle()
	pause, ok := s.observe.Counts.Next(s.now())
	if !ok || pause > hurried {
		t.Errorf("the next count in %v, %v; want one within %v", pause, ok, hurried)
	}
	s.told("sends 80,000 tensors to workers by spawn", "80,500 memory mappings of the 65,530 in vm.max_map_count", `set_start_method("fork")`)
	if strings.Contains(s.stderr(), "ulimit") {
		t.Errorf("descriptors do not run out:\n%s", s.stderr())
	}
	s.mappings(id.PID, 60000)
	s.later(hurried)
	s.full()
	s.settle()
	s.full()
	if list := decisions(s.events(), event.LimitMaps); len(list) != 1 {
		t.Errorf("decisions %v", list)
	}
	s.later(30 * time.Second)
	s.mappings(id.PID, 100)
	s.recount()
	s.recount()
	if pause, ok := s.observe.Counts.Next(s.now()); ok {
		t.Errorf("a count is due in %v though the hurry is over", pause)
	}
}

// TestRaised: what the hook did for --nofile is reported.
func TestRaised(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(20*rss.MiB, worker1)
	s.open(s.holder.begin)
	say := func(more string, before, now, need int) {
		s.log(id, fmt.Sprintf(`"what":"raised"%s,"sharing":{"start_method":"spawn","strategy":"file_descriptor","workers":1,"tensors":4000,"tensor_bytes":1,`+
			`"maps_needed":4500,"maps_limit":65530,"fds_needed":%d,"fds_limit":%d,"fds_hard_limit":4096,"fds_limit_before":%d}`, more, need, now, before))
		s.poll(true)
	}
	say("", 1024, 4096, 4020)
	say("", 4096, 4096, 9000)
	say(`,"why":"not allowed"`, 1024, 1024, 9000)
	said := s.stderr()
	for _, want := range []string{"may have 4,096 descriptors now, 1,024 before\n", "; it will need 9,000\n", "could not be raised from 1,024: not allowed\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	cures := named(s.events(), event.NameCure)
	if len(cures) != 3 || cures[0]["remedy"] != "nofile" || cures[0]["ok"] != true || cures[0]["before"] != 1024.0 || cures[0]["after"] != 4096.0 ||
		cures[2]["ok"] != false || cures[2]["reason"] != "not allowed" {
		t.Errorf("cures %v", cures)
	}
}

// TestWarnedAheadOfTheNextCount: where mappings come so fast that the next count may
// be too late, the rung is met before its time, and the line says so; below half of
// the limit a burst is no news.
func TestWarnedAheadOfTheNextCount(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		more int // in 0.2 s
		want bool
	}{
		{"fast, near", 50_000, 5000, true},
		{"fast, below half", 30_000, 5000, false},
		{"slow, near", 52_000, 60, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t)
			s.fs.Write("proc/sys/vm/max_map_count", fmt.Sprintln(mostMaps))
			s.mappings(theCommand, c.n-c.more)
			s.open(s.holder.begin)
			s.settle()
			s.observe.Counts.Hurry(theCommand, s.now()+time.Minute)
			s.full()
			s.mappings(theCommand, c.n)
			for range 2 {
				s.later(2 * hurried)
				s.full()
				s.settle()
			}
			s.full()
			all := decisions(s.events(), event.LimitMaps)
			if (len(all) > 0) != c.want {
				t.Fatalf("decisions %v", all)
			}
			if !c.want {
				return
			}
			if lead, _ := all[0]["lead"].(float64); lead == 0 || all[0]["lead_bytes"] != nil {
				t.Errorf("decision %v", all[0])
			}
			if !strings.Contains(strings.Join(s.lines.all, "\n"), ", full within 4 s") {
				t.Errorf("said %q", s.lines.all)
			}
		})
	}
}
