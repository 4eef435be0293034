package supervisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// telling has the alerts of a stand carried by a program that keeps each request as a
// file, and returns where.
func telling(t *testing.T, kind alert.Kind) (dir string, change func(*Options)) {
	t.Helper()
	dir = t.TempDir()
	program := filepath.Join(dir, "carry")
	script := "#!/bin/sh\ncat > " + dir + "/$$.new && mv " + dir + "/$$.new " + dir + "/$$.json\necho '{\"taken\":99}'\n"
	wardentest.NoError(t, os.WriteFile(program, []byte(script), 0o755))
	return dir, func(o *Options) {
		o.Settings.AlertProgram, o.Settings.AlertToken = program, "t0ken"
		o.Settings.Alerts = []alert.Target{{Kind: kind, URL: "http://me:s3cret@h/x?y"}}
	}
}

// carried waits until so many messages were carried and returns all, by their start.
func carried(t *testing.T, dir string, n int) (all []alert.Message) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		all = nil
		files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		for _, f := range files {
			b, err := os.ReadFile(f)
			wardentest.NoError(t, err)
			var r alert.Request
			wardentest.NoError(t, json.Unmarshal(b, &r))
			if r.Token != "" {
				t.Error("what has a user of its own got the token")
			}
			for _, body := range r.Bodies {
				var m alert.Message
				wardentest.NoError(t, json.Unmarshal(body, &m))
				all = append(all, m)
			}
		}
		if len(all) >= n {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d messages, want %d", len(all), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestAlerts: a crossed rung is sent, and its resolution when the command has ended.
func TestAlerts(t *testing.T) {
	dir, with := telling(t, alert.Webhook)
	s := opened(t, with)
	s.put(theCommand, theHolder, 850*rss.MiB, 0)
	s.full()
	m := carried(t, dir, 1)[0]
	if m.Status != alert.Firing || m.Alert != "RsswardenMemoryNearLimit" || m.Limit != event.LimitUser || m.Rung != "80%" || m.Action != event.ActionWarn ||
		*m.UsedBytes != uint64(850*rss.MiB) || *m.LimitBytes != uint64(1000*rss.MiB) || !strings.Contains(m.Text, "memory 85 % of 1000 MiB (--limit, summed RSS)") {
		t.Errorf("%+v", m)
	}
	deadline := time.Now().Add(time.Minute)
	for s.status().Alerts[0].Sent == 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if got := s.status().Alerts; len(got) != 1 || got[0].Firing != 1 || got[0].Receiver != "webhook+http://h/…" || got[0].SentAt == nil {
		t.Errorf("status: %+v", got)
	}
	s.end(&hold.Exit{})
	all := carried(t, dir, 2)
	i := slices.IndexFunc(all, func(m alert.Message) bool { return m.Status == alert.Resolved })
	if i < 0 || all[i].ID != m.ID || all[i].EndsAt == nil {
		t.Errorf("at the end: %+v", all)
	}
	b, err := os.ReadFile(s.Settings.Events)
	wardentest.NoError(t, err)
	for _, secret := range []string{"s3cret", "t0ken"} {
		if strings.Contains(string(b), secret) || strings.Contains(s.stderr(), secret) {
			t.Errorf("%s was told", secret)
		}
	}
}
