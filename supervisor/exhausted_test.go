package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestExhausted is the verdict where something else than memory ran out, or could
// have.
func TestExhausted(t *testing.T) {
	maps := func(s *stand, percent int) {
		s.mappings(theCommand, 10*percent)
		s.recount()
	}
	sharing := func(sent, maxSent, n, most int) *event.Sharing {
		return &event.Sharing{Method: "forkserver", Strategy: "file_descriptor", Workers: 2, Tensors: 4000,
			Maps: 5000, MaxMaps: 65530, FDs: n, MaxFDs: most, HardFDs: most, Sent: sent, MaxSent: maxSent}
	}
	told := func(s *stand, x *event.Sharing) {
		s.tell.Sum.Loader(s.now(), &loader.Said{LoaderSaid: event.LoaderSaid{What: event.LoaderPickling, PID: theCommand, Sharing: x}})
	}
	for _, c := range []struct {
		name  string
		set   func(*stand)
		exit  hold.Exit
		want  event.RunOutcome
		words []string
	}{
		{"97 % and it went well", func(s *stand) { maps(s, 97) }, hold.Exit{}, event.RunOK, nil},
		{"97 % and it failed", func(s *stand) { maps(s, 97) }, hold.Exit{Code: 1}, event.RunExhausted, []string{"ran out of memory mappings", " 97 %  970 of 1,000, memory mappings"}},
		{"97 %, and a signal ended it", func(s *stand) { maps(s, 97) }, hold.Exit{Signal: 15}, event.RunCancelled, nil},
		{"97 % an hour before", func(s *stand) { maps(s, 97); maps(s, 5); s.later(time.Hour); s.full() }, hold.Exit{Code: 1}, event.RunFailed, nil},
		{"90 % all the time, and it failed", func(s *stand) { maps(s, 90); s.later(time.Minute); s.recount() }, hold.Exit{Code: 1}, event.RunFailed, nil},
		{"too much for the fork server", func(s *stand) { told(s, sharing(500, 253, 4000, 65536)) }, hold.Exit{Code: 1}, event.RunExhausted,
			[]string{"500 of 253, file descriptors", `set_start_method("fork")`}},
		{"too much for the fork server, it went well", func(s *stand) { told(s, sharing(500, 253, 4000, 65536)) }, hold.Exit{}, event.RunOK, nil},
		{"too much, and ten minutes of training after", func(s *stand) { told(s, sharing(500, 253, 4000, 65536)); s.later(10 * time.Minute); s.full() },
			hold.Exit{Code: 1}, event.RunFailed, nil},
		{"just fits", func(s *stand) { told(s, sharing(253, 253, 4000, 65536)) }, hold.Exit{Code: 1}, event.RunFailed, nil},
		{"too many descriptors", func(s *stand) { told(s, sharing(0, 0, 8000, 1024)) }, hold.Exit{Signal: 6}, event.RunExhausted,
			[]string{"8,000 of 1,024, file descriptors", "next raise ulimit -n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t)
			s.fs.Write("proc/sys/vm/max_map_count", "1000\n")
			s.mappings(theCommand, 10)
			s.open(s.holder.begin)
			s.settle()
			c.set(s)
			s.end(&c.exit)
			wardentest.Has(t, only(t, s.events(), event.NameExit), "outcome", string(c.want))
			s.told(c.words...)
		})
	}
}

// TestPicklingHurries: what says that it is about to send many tensors is counted
