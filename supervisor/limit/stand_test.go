package limit_test

import (
	"context"
	"io/fs"

	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// stand is one machine as a test has it.
type stand struct {
	t    *testing.T
	fs   rsstest.Tree
	tree *proctree.Reader
	set  *limit.Set
	warn []limit.Warning
	seq  uint64
}

// inJob is the environment of a batch step.
var inJob = map[string]string{"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_MEM_PER_NODE": "700"}

// config makes a search that finds conf as the only file, or none.
func config(conf string) slurm.Search {
	return slurm.Search{
		Paths: []string{"/etc/slurm/slurm.conf"},
		ReadFile: func(name string) ([]byte, error) {
			if name != "/etc/slurm/slurm.conf" || conf == "" {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return []byte(conf), nil
		},
	}
}

const (
	linuxKill = "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\nJobAcctGatherFrequency=task=30\nTaskPlugin=task/none\nProctrackType=proctrack/cgroup\nSelectTypeParameters=CR_Core_Memory\n"
	cgroupRAM = "JobAcctGatherType=jobacct_gather/cgroup\nTaskPlugin=task/cgroup\nProctrackType=proctrack/cgroup\nSelectTypeParameters=CR_Core_Memory\n"
)

func newStand(t *testing.T, fs rsstest.Tree, env map[string]string, conf string, change func(*limit.Config)) *stand {
	t.Helper()
	cfg := limit.Config{
		Proc: fs.Proc, Sys: fs.Sys, PID: rsstest.Trainer,
		Lookup: func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		Slurm:  config(conf),
	}
	if change != nil {
		change(&cfg)
	}
	s := &stand{t: t, fs: fs, tree: proctree.New(fs.Proc)}
	t.Cleanup(s.tree.Close)
	s.set, s.warn = limit.Find(context.Background(), cfg)
	t.Cleanup(s.set.Close)
	return s
}

// sample reads the tree and what counts beside it.
func (s *stand) sample() *rss.Sample {
	s.t.Helper()
	procs, gaps, err := s.tree.Tree(rss.ProcID{PID: rsstest.Trainer})
	if err != nil {
		s.t.Fatal(err)
	}
	extra, more, err := s.set.Extra(s.tree, procs)
	if err != nil {
		s.t.Fatal(err)
	}
	s.seq++
	return &rss.Sample{
		Seq: s.seq, At: time.Unix(1_800_000_000, 0), Mono: time.Duration(s.seq) * time.Second,
		Procs: procs, Extra: extra, Gaps: gaps.Add(more),
	}
}

func (s *stand) read() []event.Limit {
	s.t.Helper()
	limits := s.set.Read(s.sample())
	for i, l := range limits {
		if l.Binding != (i == 0 && l.Name != event.LimitTime && l.Name != event.LimitThrottle) {
			s.t.Errorf("binding: %d %+v", i, l)
		}
		if l.Name != event.LimitTime && (l.UsedSource == "" || l.LimitSource == "" || l.Limit == 0 || l.UsedMax < l.Used) {
			s.t.Errorf("incomplete: %+v", l)
		}
		if l.Enforcer == "" || l.Scope == "" {
			s.t.Errorf("incomplete: %+v", l)
		}
	}
	return limits
}

func names(limits []event.Limit) string {
	var s []string
	for _, l := range limits {
		s = append(s, string(l.Name)+"/"+string(l.Scope))
	}
	return strings.Join(s, " ")
}

func get(t *testing.T, limits []event.Limit, name event.LimitName) event.Limit {
	t.Helper()
	for _, l := range limits {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("no %s among %s", name, names(limits))
	return event.Limit{}
}

func scoped(t *testing.T, limits []event.Limit, name event.LimitName, scope event.Scope) event.Limit {
	t.Helper()
	for _, l := range limits {
		if l.Name == name && l.Scope == scope {
			return l
		}
	}
	t.Fatalf("no %s of the %s among %s", name, scope, names(limits))
	return event.Limit{}
}

func total(procs ...[]rss.Proc) (n rss.Bytes) {
	for _, list := range procs {
		for _, p := range list {
			n += p.RSS
		}
	}
	return n
}
