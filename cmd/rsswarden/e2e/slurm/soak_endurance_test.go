//go:build endurance

package slurm

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// mostRecords is how many full records stay on a node's disk, and those of the last
// youngest, which may be in use.
const (
	mostRecords = 64
	youngest    = 10 * time.Minute
)

// TestEnduranceSoak: a hundred trainings one after the other, each of which its limit kills
// bare, all end as they should, with the data of the first. What a run leaves on the node is
// what the first left, but for its record, of which the newest stay: no process, socket, file
// of shared memory or cgroup of ours is there afterwards.
func TestEnduranceSoak(t *testing.T) {
	s := trainStand(t, slurmtest.Linux)
	options := []string{"--persistent", "--workers", "4", "--epochs", "1"}
	want := s.reference(t, options...)
	place := filepath.Join(s.Dir(), "soak")
	wardentest.NoError(t, os.Mkdir(place, 0o777))
	wardentest.NoError(t, os.Chmod(place, 0o777))
	script := s.script(s.rsswarden+" run --at 50%:warn --", options...)
	var first, now leftover
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("at first: %+v\nat last: %+v\nsince then: %q", first, now, now.beyond(&first))
		}
	})
	n, good := wardentest.Times(100), 0
	var ended []time.Time // one for each good job
	for i := range n {
		got := s.Submit(t, script, "--mem=3000", "--export=ALL,RSSWARDEN_RUNTIME="+place).Wait(t)
		if got.State != "COMPLETED" || got.ExitCode != 0 || wardentest.Checksum(got.Stdout) != want {
			t.Errorf("job %d: %s %d:%d, checksum %s, want %s\n%s", i+1, got.State, got.ExitCode, got.Signal, wardentest.Checksum(got.Stdout), want, got.Stderr)
			continue
		}
		good++
		wardentest.Until(t, "what a run started has ended", func() bool {
			now = leftBy(t, place)
			return now.processes == 0 && (i == 0 || now.files <= first.files && len(now.beyond(&first)) == 0)
		})
		if i == 0 {
			first = now
		}
		ended = append(ended, time.Now())
		young := len(ended) - slices.IndexFunc(ended, func(at time.Time) bool { return time.Since(at) < youngest })
		if now.records < min(len(ended), mostRecords) || now.records > max(young+1, mostRecords) {
			t.Errorf("after job %d: %+v", i+1, now)
		}
		if (i+1)%10 == 0 {
			t.Logf("after job %d: %+v", i+1, now)
		}
	}
	t.Logf("%d of %d COMPLETED, with the data of the run that nothing limits", good, n)
}

// leftover is what is there of ours on the node.
type leftover struct {
	processes int // rsswarden run and their watchers
	files     int // below the place for files of runs, less those of records
	records   int
	node      []string // what is in /dev/shm, and the cgroups of the memory hierarchy, whose ever they are
}

// beyond is what is there on the node that was not at first.
func (l *leftover) beyond(first *leftover) []string {
	return slices.DeleteFunc(slices.Clone(l.node), func(path string) bool { return slices.Contains(first.node, path) })
}

func leftBy(t *testing.T, place string) (l leftover) {
	t.Helper()
	names, err := os.ReadDir("/proc")
	wardentest.NoError(t, err)
	for _, name := range names {
		if _, err := strconv.Atoi(name.Name()); err != nil {
			continue
		}
		// Its environment names the place: others on this machine are not of this test.
		env, err := os.ReadFile("/proc/" + name.Name() + "/environ")
		comm, _ := os.ReadFile("/proc/" + name.Name() + "/comm")
		if c := strings.TrimSpace(string(comm)); err == nil && (c == "rsswarden" || c == "rss-watcher") && strings.Contains(string(env), place) {
			l.processes++
		}
	}
	count := func(dir string, each func(path string, e fs.DirEntry) bool) (n int) {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && path != dir && each(path, e) {
				n++
			}
			return nil // what vanishes is not there
		})
		return n
	}
	inRecords := func(path string) bool { return strings.Contains(path, "/records/") }
	l.files = count(place, func(path string, _ fs.DirEntry) bool { return !inRecords(path) })
	l.records = count(place, func(path string, e fs.DirEntry) bool {
		return e.IsDir() && filepath.Base(filepath.Dir(path)) == "records"
	})
	count("/dev/shm", func(path string, _ fs.DirEntry) bool {
		l.node = append(l.node, path)
		return true
	})
	// What lies beside the test's own cgroup is another session's.
	own := wardentest.OwnMemoryCgroup(t)
	count("/sys/fs/cgroup/memory", func(path string, e fs.DirEntry) bool {
		if e.IsDir() && (filepath.Dir(path) != filepath.Dir(own) || path == own) {
			l.node = append(l.node, path)
		}
		return e.IsDir()
	})
	return l
}
