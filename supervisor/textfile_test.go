package supervisor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// textfileStand is a watcher with --textfile, opened.
func textfileStand(t *testing.T) (s *stand, dir string) {
	dir = t.TempDir()
	s = opened(t, func(o *Options) {
		o.Settings.Textfile, o.Settings.RunID, o.Settings.Version = dir, "run-7", "v1"
	})
	t.Cleanup(func() { s.tell.Textfile.Close(); <-s.tell.Textfile.Removed })
	return s, dir
}

// shown is what stands in the one file of a directory, empty for none.
func shown(dir string) string {
	names, _ := filepath.Glob(dir + "/*.prom")
	if len(names) != 1 {
		return ""
	}
	b, _ := os.ReadFile(names[0])
	return string(b)
}

func shows(t *testing.T, dir string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		wardentest.Until(t, line, func() bool { return strings.Contains(shown(dir), line+"\n") })
	}
}

// TestTextfile: what a run tells from its first look until its end.
func TestTextfile(t *testing.T) {
	s, dir := textfileStand(t)
	at := `node="` + s.tell.Run.Node + `",run="` + s.tell.Run.Label() + `"`
	shows(t, dir,
		`rsswarden_job_memory_used_bytes{`+at+`,limit="user"} 104857600`,
		`rsswarden_job_memory_limit_bytes{`+at+`,limit="user"} 1048576000`,
		`rsswarden_job_limit_ratio{`+at+`,limit="user"} 0.1`,
		`rsswarden_processes{`+at+`,role="other"} 1`,
		`rsswarden_memory_rss_bytes{`+at+`,role="other"} 104857600`,
		`rsswarden_actions_total{`+at+`,action="warn",outcome="done"} 0`,
		`rsswarden_actions_total{`+at+`,action="trim",outcome="refused"} 0`,
		`rsswarden_actions_total{`+at+`,action="worker_trim",outcome="done"} 0`,
		`rsswarden_oom_kills_total{`+at+`} 0`,
		`rsswarden_ranks{`+at+`} 1`,
		`rsswarden_build_info{`+at+`,version="v1"} 1`,
	)
	// The reference says which are a run's.
	for l := range strings.Lines(string(s.tell.Textfile.Metrics(s.looked(), nil, nil).Text())) {
		name, isName := strings.CutPrefix(l, "# HELP ")
		name, _, _ = strings.Cut(name, " ")
		if isName && !slices.ContainsFunc(metrics.All, func(m *metrics.Metric) bool { return m.Name == name && m != &metrics.OOMUnheard }) {
			t.Errorf("%s is not of a run", name)
		}
	}
	// It is written each 15 s, whatever is looked at meanwhile.
	s.put(theCommand, theHolder, 200*rss.MiB, 0)
	for range 7 {
		s.later(2 * time.Second)
		s.full()
	}
	if text := shown(dir); !strings.Contains(text, " 104857600\n") {
		t.Errorf("written before 15 s:\n%s", text)
	}
	s.later(2 * time.Second)
	s.full()
	shows(t, dir, `rsswarden_job_memory_used_bytes{`+at+`,limit="user"} 209715200`)
	// And at once where something was decided. Trim is of no use here.
	s.put(theCommand, theHolder, 860*rss.MiB, 0)
	s.later(time.Second)
	s.full()
	shows(t, dir,
		`rsswarden_job_memory_used_bytes{`+at+`,limit="user"} 901775360`,
		`rsswarden_actions_total{`+at+`,action="warn",outcome="done"} 1`,
		`rsswarden_actions_total{`+at+`,action="trim",outcome="refused"} 1`,
	)
	s.end(&hold.Exit{})
	// What stays is how many runs of the user have ended, and how.
	if text := shown(dir); !strings.Contains(text, `outcome="tight"} 1`) || strings.Count(text, "} 1\n") != 1 || strings.Contains(text, "rsswarden_ranks") {
		t.Errorf("left at the end:\n%s", text)
	}
}

// TestTextfileOfOneKilled: a watcher that was started again, and does not lead now, takes
// away what it told before.
func TestTextfileOfOneKilled(t *testing.T) {
	s, dir := textfileStand(t)
	s.full()
	shows(t, dir, "# TYPE rsswarden_ranks gauge")
	s.tell.Textfile.Drop()
	wardentest.Until(t, "the file is gone", func() bool { return shown(dir) == "" })
}
