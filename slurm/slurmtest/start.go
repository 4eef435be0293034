package slurmtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
)

// share is a cluster of a process and who uses it.
type share struct {
	sync.Mutex
	cluster *Cluster
	options Options
	users   map[string]int // tests that hold it, by name
	free    *sync.Cond
}

// A process has a cluster for the modes in which jobs are in cgroups of their own, and
// another for the rest: tests that run in parallel have both side by side.
var inCgroups, outside = newShare(), newShare()

func newShare() *share {
	s := &share{users: make(map[string]int)}
	s.free = sync.NewCond(&s.Mutex)
	return s
}

// upTimeout bounds the wait for other processes' clusters to end.
const upTimeout = 30 * time.Minute

// Start gives a test the cluster in a mode, and keeps it so until the test
// ends. It skips the test where none can run, and fails it where one that
// could does not.
func Start(t testing.TB, mode Mode, options Options) *Cluster {
	t.Helper()
	if err := Missing(); err != nil {
		t.Skip(err)
	}
	if options.Suite != "" {
		debian.Need(t, options.Suite)
	}
	s := outside
	if mode.InCgroups() {
		s = inCgroups
	}
	s.Lock()
	defer s.Unlock()
	for len(s.users) > 0 && !s.serves(mode, options) {
		for name := range s.users {
			if name == t.Name() || strings.HasPrefix(t.Name(), name+"/") {
				t.Fatalf("%s holds the cluster in mode %s: start another mode in a test of its own", name, s.cluster.Mode)
			}
		}
		s.free.Wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), upTimeout)
	defer cancel()
	if s.cluster == nil {
		c, err := Up(ctx, mode, options)
		if err != nil {
			t.Fatal(err)
		}
		if c.waited > time.Second {
			t.Logf("waited %v for other processes' clusters to end", c.waited)
		}
		s.cluster, s.options = c, options
	} else if !s.serves(mode, options) {
		if err := s.cluster.restart(ctx, mode, options); err != nil {
			s.shutdown()
			t.Fatal(err)
		}
		s.options = options
	}
	name := t.Name()
	s.users[name]++
	t.Cleanup(func() {
		s.Lock()
		defer s.Unlock()
		if s.users[name]--; s.users[name] == 0 {
			delete(s.users, name)
		}
		s.free.Broadcast()
	})
	return s.cluster
}

func (s *share) serves(mode Mode, options Options) bool {
	return s.cluster != nil && s.cluster.Mode == mode && s.options == options
}

func (s *share) shutdown() error {
	if s.cluster == nil {
		return nil
	}
	err := s.cluster.Down()
	s.cluster = nil
	return err
}

// Shutdown ends the clusters of this process, and returns when they are gone. Without
// it they end with the process; a TestMain may call it to have that done before go test
// returns.
func Shutdown() (failed error) {
	for _, s := range []*share{inCgroups, outside} {
		s.Lock()
		failed = errors.Join(failed, s.shutdown())
		s.Unlock()
	}
	return failed
}
