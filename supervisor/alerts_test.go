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
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
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

const commentedJob = "JobId=46 JobName=train\n   UserId=me(1000) GroupId=me(1000)\n   JobState=RUNNING Reason=None\n   Comment=for paper 3 \n   Power=\n   \n\n"

func commentingStand(t *testing.T, env map[string]string, changes ...func(*Options)) (*stand, fakeSlurm) {
	t.Helper()
	f := newFakeSlurm(t)
	f.write(t, "job", commentedJob)
	s := inJob46(t, env, append(changes, func(o *Options) { o.Settings.Rules, o.Settings.AlertComment = mustRules("80%:warn"), true })...)
	return s, f
}

// written waits for what is being written into the comment.
func (s *stand) written() error {
	s.t.Helper()
	over := s.tell.Alerts.Comment.Writing()
	if over == nil {
		s.t.Fatal("nothing is being written")
	}
	select {
	case <-over:
	case <-time.After(time.Minute):
		s.t.Fatal("it is never written")
	}
	select {
	case e := <-s.tell.Failures():
		s.tell.Failed(s.now(), e)
		return e
	default:
		return nil
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

// TestAlertComment: a warning and the end follow what the user has in the
// job's comment.
func TestAlertComment(t *testing.T) {
	s, f := commentingStand(t, nil)
	s.put(theCommand, theHolder, 850*rss.MiB, 0)
	s.full()
	wardentest.NoError(t, s.written())
	s.full() // writes the comment
	if s.tell.Alerts.Comment.Writing() != nil {
		t.Error("written again")
	}
	s.end(&hold.Exit{})
	calls := f.calls(t)
	if len(calls) != 2 || !strings.HasPrefix(calls[0], "update JobId=46 Comment=for paper 3; rsswarden: memory 85 % of 1000 MiB on n1 at ") ||
		!strings.HasPrefix(calls[1], "update JobId=46 Comment=for paper 3; rsswarden: ended, tight; at most 85 % of 1000 MiB on n1") {
		t.Errorf("%q", calls)
	}
}

// TestAlertCommentOfOthers: another node than the first leaves it alone, and so does
// a dry run, which says what it would write.
func TestAlertCommentOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		env    map[string]string
		dry    bool
		stderr int
	}{
		"another node":   {map[string]string{"SLURM_NODEID": "1"}, false, 0},
		"another task":   {map[string]string{"SLURM_PROCID": "3"}, false, 0},
		"a dry run":      {nil, true, 2},
		"hangs at first": {map[string]string{"hang": "1"}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := commentingStand(t, test.env, func(o *Options) { o.Settings.DryRun = test.dry })
			hangs := test.env["hang"] != ""
			if hangs {
				f.write(t, "wait-show", "")
				defer os.Remove(filepath.Join(string(f), "wait-show"))
			}
			s.put(theCommand, theHolder, 850*rss.MiB, 0)
			s.full()
			if (s.tell.Alerts.Comment.Writing() != nil) != hangs {
				t.Error("written")
			}
			began := time.Now()
			s.end(&hold.Exit{})
			if took := time.Since(began); hangs && took > time.Second+action.LastPatience {
				t.Errorf("the end took %v", took)
			}
			if n := len(f.calls(t)); n != 0 {
				t.Errorf("written %d times", n)
			}
			s.times(test.stderr, "would set the comment of job 46: rsswarden: ")
		})
	}
}

// TestAlertCommentOfRanks: the leader writes the last words of its rank, whether another one
// leads after it or all end with it; and so does its successor, which is not the
// job's first task.
func TestAlertCommentOfRanks(t *testing.T) {
	f := newFakeSlurm(t)
	f.write(t, "job", commentedJob)
	dir := runtimeDir(t)
	_, oursID := rsstest.Sleeper(t)
	_, theirsID := rsstest.Sleeper(t)
	first := newRank(t, nil, dir, 0, "0", oursID, "80%:warn")
	second := newRank(t, first, dir, 1, "0", theirsID, "80%:warn")
	first.Settings.AlertComment, second.Settings.AlertComment = true, true
	first.leads()
	second.follows()
	first.meets(1, 0)
	first.ended(0)
	second.takesOver()
	second.open(second.holder.begin)
	second.meet()
	second.full()
	second.ended(0)
	calls := f.calls(t)
	if len(calls) != 2 || !strings.HasPrefix(calls[0], "update JobId=46 Comment=for paper 3; rsswarden: rank 0 ended, ok") ||
		!strings.HasPrefix(calls[1], "update JobId=46 Comment=for paper 3; rsswarden: ended, ") {
		t.Errorf("%q", calls)
	}
}
