package observe

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// PIDs above the kernel's greatest.
const (
	theHolder  = 5000000
	theCommand = 5000001
)

// stand is an observer of a made-up command of 100 MiB under --limit 1000M of summed RSS.
type stand struct {
	*Observer
	t   *testing.T
	fs  rsstest.Tree
	v   *view.View
	now time.Duration
}

func newStand(t *testing.T, change func(*settings.Settings, map[string]string)) *stand {
	t.Helper()
	s := &stand{t: t, fs: rsstest.Empty(t), v: &view.View{Watched: -1}}
	s.fs.Write("proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 67108864 kB\nMemAvailable: 67108864 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	set := &settings.Settings{Limit: 1000 * rss.MiB, Accounting: event.AccountingRSS, Interval: time.Second}
	env := map[string]string{}
	if change != nil {
		change(set, env)
	}
	s.put(100 * rss.MiB)
	probes := new(probe.Set)
	s.Observer = New(Options{
		Settings: set, Proc: s.fs.Proc, Sys: s.fs.Sys, Self: theHolder + 9, Holder: theHolder,
		Command: rss.ProcID{PID: theCommand, Start: 10}, Probes: probes, Bell: wake.New(),
		Lookup:   func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		Scontrol: func(context.Context, ...string) ([]byte, error) { return nil, errors.New("no scontrol here") },
		Start:    (*exec.Cmd).Start, Subreaper: func(bool) error { return nil },
	})
	s.Open(theHolder, theCommand, "")
	s.read()
	return s
}

// put gives the command so much.
func (s *stand) put(anon rss.Bytes) {
	s.fs.Put(rsstest.Process{PID: theCommand, Parent: theHolder, Start: 10, Comm: "python", Anon: anon})
}

// read takes a full read a second after the last, and returns its news.
func (s *stand) read() (news view.News) {
	s.now += time.Second
	s.v, news = s.Full(s.now, s.v)
	return news
}

// user is the reading of --limit.
func (s *stand) user() *event.Limit {
	s.t.Helper()
	l := s.v.Limit(event.LimitID{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: s.opt.Settings.Accounting})
	if l == nil {
		s.t.Fatalf("no reading of --limit among %+v", s.v.Limits)
	}
	return l
}
