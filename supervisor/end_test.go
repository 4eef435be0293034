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
		{"fine, and short", func(*stand) {}, &hold.Exit{}, nil, "command", 0.0, nil},
		{"failed", func(*stand) {}, &hold.Exit{Code: 2}, []string{"✖ command failed, memory fine (exit 2"}, "command", 2.0, nil},
		{"killed", func(s *stand) { s.put(theCommand, theHolder, 990*rss.MiB, 0); s.full() }, &hold.Exit{Signal: int(syscall.SIGKILL)},
			[]string{"✖ killed by an external SIGKILL, memory at 99 % of --limit (SIGKILL"}, "command", nil, "SIGKILL"},
		{"real-time signal", func(*stand) {}, &hold.Exit{Signal: 40}, []string{"✖ command failed, memory fine (SIG40"}, "command", nil, "SIG40"},
		{"stopped", func(s *stand) { s.tell.Sum.Stopped = true }, &hold.Exit{Signal: int(syscall.SIGTERM)},
			[]string{"✖ stopped by rsswarden (exit 137"}, "rsswarden", 137.0, nil},
		{"restarted", func(s *stand) { s.tell.Sum.Watched = false }, &hold.Exit{}, nil, "command", 0.0, nil},
		{"holder gone", func(*stand) {}, nil, []string{"? unknown exit status"}, "command", nil, nil},
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
