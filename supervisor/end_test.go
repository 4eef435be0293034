package supervisor

import (
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

func TestLastWords(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*stand)
		exit *hold.Exit
		want []string
		by   string
		code any
		sig  any
	}{
		{"fine", func(*stand) {}, &hold.Exit{},
			[]string{"exit status 0 after ", "peaks of its tree: summed RSS 100 MiB, without shared pages 100 MiB", "nearest limit: user at 100 MiB, 10 % of 1000 MiB", "verdict: fine; next time #SBATCH --mem="},
			"command", 0.0, nil},
		{"failed", func(*stand) {}, &hold.Exit{Code: 2},
			[]string{"exit status 2 after ", "M at least: what it would have needed later is not known (memory was fine, whatever ended the command: peak 100 MiB"},
			"command", 2.0, nil},
		{"killed", func(s *stand) { s.put(theCommand, theHolder, 990*rss.MiB, 0); s.full() }, &hold.Exit{Signal: int(syscall.SIGKILL)},
			[]string{"killed by SIGKILL", "verdict: killed"}, "command", nil, "SIGKILL"},
		{"real-time signal", func(*stand) {}, &hold.Exit{Signal: 40}, []string{"killed by SIG40"}, "command", nil, "SIG40"},
		{"stopped", func(s *stand) { s.tell.Sum.Stopped = true }, &hold.Exit{Signal: int(syscall.SIGTERM)},
			[]string{"stopped by rsswarden, exit status 137", "verdict: stopped"}, "rsswarden", 137.0, nil},
		{"carried", func(s *stand) { s.tell.Sum.Done.Trims, s.tell.Sum.Done.Helped = 1, 1 }, &hold.Exit{}, []string{"done: trimmed once", "verdict: carried"}, "command", 0.0, nil},
		{"restarted", func(s *stand) { s.tell.Sum.Watched = false }, &hold.Exit{}, []string{"verdict: unwatched"}, "command", 0.0, nil},
		{"holder gone", func(*stand) {}, nil, []string{"rsswarden's holder ended first", "verdict: unwatched"}, "command", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := opened(t, nil)
			test.set(s)
			s.end(test.exit)
			for _, want := range test.want {
				if !strings.Contains(s.stderr(), want) {
					t.Errorf("no %q in:\n%s", want, s.stderr())
				}
			}
			all := s.events()
			last := all[len(all)-1]
			if last["event"] != "exit" || last["by"] != test.by || last["code"] != test.code || last["signal"] != test.sig {
				t.Errorf("exit event %v", last)
			}
		})
	}
}
