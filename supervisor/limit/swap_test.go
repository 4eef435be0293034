package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Swap that may be used puts the kill off, on both versions.
func TestSwap(t *testing.T) {
	mib := func(l event.Limit) (used, max int) { return int(l.Used / rss.MiB), int(l.Limit / rss.MiB) }
	v1 := "sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/"
	withSwap := func(fs rsstest.Tree) {
		fs.Replace("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal:       1048576 kB")
		fs.Replace("proc/meminfo", "SwapFree:              0 kB", "SwapFree:         524288 kB")
	}
	for _, c := range []struct {
		name   string
		change func(rsstest.Tree)
		swap   int // MiB above the limit
		used   int // MiB above the unreclaimable
	}{
		{"no swap on the node", func(fs rsstest.Tree) { fs.Write(v1+"memory.memsw.limit_in_bytes", "943718400\n") }, 0, 0},
		{"memsw unlimited", withSwap, 512 + 100, 100},
		{"memsw 200 MiB above", func(fs rsstest.Tree) {
			withSwap(fs)
			fs.Write(v1+"memory.memsw.limit_in_bytes", "943718400\n")
		}, 200, 100},
		{"memsw equal", func(fs rsstest.Tree) {
			withSwap(fs)
			fs.Write(v1+"memory.memsw.limit_in_bytes", "734003200\n")
		}, 0, 100},
		{"memsw 200 MiB above, of a level above", func(fs rsstest.Tree) {
			withSwap(fs)
			fs.Replace(v1+"memory.stat", "hierarchical_memsw_limit 9223372036854771712", "hierarchical_memsw_limit 943718400")
		}, 200, 100},
		{"swappiness 0", func(fs rsstest.Tree) {
			withSwap(fs)
			fs.Write(v1+"memory.swappiness", "0\n")
		}, 100, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := rsstest.Unpack(t, "torch", "slurm-v1")
			bare := newStand(t, fs, inJob, cgroupRAM, nil).read()
			fs.Write(v1+"memory.memsw.usage_in_bytes", addTo(t, fs, v1+"memory.usage_in_bytes", 100<<20))
			c.change(fs)
			// The step has room for swap without end; the job is asked for.
			was := scoped(t, bare, event.LimitCgroup, event.ScopeJob)
			got := scoped(t, newStand(t, fs, inJob, cgroupRAM, nil).read(), event.LimitCgroup, event.ScopeJob)
			used, max := mib(got)
			wasUsed, wasMax := mib(was)
			if used-wasUsed != c.used || max-wasMax != c.swap {
				t.Errorf("used %d → %d MiB, limit %d → %d MiB", wasUsed, used, wasMax, max)
			}
		})
	}
}

// On v2 each level above must allow the swap too.
func TestSwapAbove(t *testing.T) {
	const slice = "sys/fs/cgroup/system.slice/"
	const scope = slice + "n1_slurmstepd.scope/"
	const job = scope + "job_7/"
	const step = job + "step_batch/"
	for _, c := range []struct {
		name   string
		change func(rsstest.Tree)
		swap   rss.Bytes // MiB above the limit
		from   string
	}{
		{"nowhere limited", func(rsstest.Tree) {}, 512, job},
		{"none above", func(fs rsstest.Tree) { fs.Write(slice+"memory.swap.max", "0\n") }, 0, ""},
		{"less above", func(fs rsstest.Tree) {
			fs.Write(job+"memory.swap.max", "419430400\n") // 400 MiB
			fs.Write(scope+"memory.swap.max", "314572800\n")
		}, 300, scope},
		{"less left above", func(fs rsstest.Tree) {
			fs.Write(job+"memory.swap.max", "419430400\n")
			fs.Write(scope+"memory.swap.max", "1073741824\n")
			fs.Write(scope+"memory.swap.current", "1069547520\n") // 4 MiB less
		}, 4, scope},
		{"used up by others", func(fs rsstest.Tree) {
			fs.Write(scope+"memory.swap.max", "1073741824\n")
			fs.Write(scope+"memory.swap.current", "1073741824\n")
		}, 0, ""},
		{"none for the command itself", func(fs rsstest.Tree) { fs.Write(step+"user/memory.swap.max", "0\n") }, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := rsstest.Unpack(t, "torch", "slurm-v2")
			fs.Replace("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal:       1048576 kB")
			fs.Replace("proc/meminfo", "SwapFree:              0 kB", "SwapFree:         524288 kB")
			for _, dir := range []string{slice, scope, job, step, step + "user/", step + "user/task_0/"} {
				fs.Write(dir+"memory.swap.max", "max\n")
				fs.Write(dir+"memory.swap.current", "0\n")
			}
			c.change(fs)
			l := scoped(t, newStand(t, fs, inJob, cgroupRAM, nil).read(), event.LimitCgroup, event.ScopeJob)
			if l.Limit != (770+c.swap)*rss.MiB {
				t.Errorf("limit %v from %s", l.Limit, l.LimitSource)
			}
			want := fs.Path(job + "memory.max")
			if c.from != "" {
				want += " and " + fs.Path(c.from+"memory.swap.max")
			}
			if l.LimitSource != want {
				t.Errorf("limit from %s, want %s", l.LimitSource, want)
			}
		})
	}
}

// The node's OOM killer strikes when swap is full too.
func TestSwapOfNode(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	bare := get(t, newStand(t, fs, nil, "", nil).read(), event.LimitNode)
	fs.Replace("proc/meminfo", "SwapTotal:             0 kB", "SwapTotal:       1048576 kB")
	fs.Replace("proc/meminfo", "SwapFree:              0 kB", "SwapFree:         524288 kB")
	s := newStand(t, fs, nil, "", nil)
	l := get(t, s.read(), event.LimitNode)
	if l.Limit != bare.Limit+rss.GiB || l.Used != bare.Used+512*rss.MiB || !strings.Contains(l.Note, "1.00 GiB of swap is counted in") {
		t.Errorf("%+v, without swap %+v", l, bare)
	}
	if f, ok := s.set.Fast(time.Second, 0, nil); !ok || f.Limit.Used != l.Used || f.Limit.Limit != l.Limit {
		t.Errorf("fast: %+v", f)
	}
}

func addTo(t *testing.T, fs rsstest.Tree, name string, n uint64) string {
	t.Helper()
	var was uint64
	for _, c := range strings.TrimSpace(fs.Read(name)) {
		was = was*10 + uint64(c-'0')
	}
	b := []byte{}
	for v := was + n; v > 0; v /= 10 {
		b = append([]byte{byte('0' + v%10)}, b...)
	}
	return string(b) + "\n"
}
