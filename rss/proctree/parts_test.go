package proctree

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

const rollupText = `557fc7e23000-7ffedbe50000 ---p 00000000 00:00 0                          [rollup]
Rss:                1780 kB
Pss:                 237 kB
Pss_Dirty:           116 kB
Pss_Anon:            110 kB
Pss_File:            121 kB
Pss_Shmem:             6 kB
Shared_Clean:       1604 kB
Shared_Dirty:         20 kB
Private_Clean:        40 kB
Private_Dirty:       116 kB
Referenced:         1780 kB
Anonymous:           115 kB
Swap:                  8 kB
SwapPss:               4 kB
Locked:                0 kB
`

func TestParseParts(t *testing.T) {
	got, err := parseParts([]byte(rollupText))
	want := rss.Parts{
		RSS: 1780 << 10, PSS: 237 << 10, PSSAnon: 110 << 10, PSSFile: 121 << 10, PSSShmem: 6 << 10, Split: true,
		SharedClean: 1604 << 10, SharedDirty: 20 << 10, PrivateClean: 40 << 10, PrivateDirty: 116 << 10,
		Anonymous: 115 << 10, Swap: 8 << 10, SwapPSS: 4 << 10,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := parseParts([]byte("0-1 [rollup]\nRss: 4 kB\nPss: 2 kB\n")); err != nil || got != (rss.Parts{RSS: 4096, PSS: 2048}) {
		t.Errorf("before Linux 5.3: %+v, %v", got, err)
	}
	if _, err := parseParts(nil); !Vanished(err) {
		t.Errorf("of a process without memory: %v", err)
	}
	for _, in := range []string{"x", "Rss: 4 kB\n", "Rss: 4 MB\nPss: 2 kB\n", "Rss: 4 kB\nPss: x kB\n", "Rss: 4 kB\nPss: 99999999999999 kB\n"} {
		if p, err := parseParts([]byte(in)); err == nil {
			t.Errorf("%q: %+v", in, p)
		}
	}
}

func FuzzParseParts(f *testing.F) {
	f.Add([]byte(rollupText))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseParts(b); err == nil && len(b) < len("Rss:0 kB\nPss:0 kB") {
			t.Errorf("%+v from %q", p, b)
		}
	})
}

func TestPartsOfThisProcess(t *testing.T) {
	const size = 8 * rss.MiB
	r := New("/proc")
	me := rss.ProcID{PID: os.Getpid()}
	before, err := r.Parts(me)
	if err != nil {
		t.Skip(err)
	}
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	p, err := r.Parts(me)
	if err != nil || p.Cost <= 0 || p.PrivateDirty < before.PrivateDirty+size-rss.MiB || p.Anonymous < before.Anonymous+size-rss.MiB ||
		p.SharedClean+p.SharedDirty+p.PrivateClean+p.PrivateDirty != p.RSS {
		t.Errorf("%+v, then %+v, %v", before, p, err)
	}
	if sum := p.PSSAnon + p.PSSFile + p.PSSShmem; p.Split && (sum > p.PSS || sum+4*rss.KiB < p.PSS) {
		t.Errorf("%v and its parts %v", p.PSS, sum)
	}
	if _, err := r.Parts(rss.ProcID{PID: me.PID, Start: 1}); !Vanished(err) {
		t.Errorf("of a process that had the PID before: %v", err)
	}
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 7})
	fs.Write("proc/7/smaps_rollup", rollupText)
	if p, err := New(fs.Proc).Parts(rss.ProcID{PID: 7}); err != nil || p.PSS != 237<<10 {
		t.Errorf("of text: %+v, %v", p, err)
	}
	if p, err := New(fs.Proc).PSS(rss.ProcID{PID: 7}); err != nil || p.PSS != 237<<10 || p.RSS != 1780<<10 || !p.Split || p.Anon != 110<<10 || p.File != 121<<10 || p.Mapped != 1665<<10 {
		t.Errorf("PSS of it: %+v, %v", p, err)
	}
	fs.Write("proc/7/smaps_rollup", "0-1 [rollup]\nRss: 8 kB\nPss: 2 kB\nAnonymous: 4 kB\n")
	if p, err := New(fs.Proc).PSS(rss.ProcID{PID: 7}); err != nil || p.PSS != 2<<10 || p.Split || p.Anon != 0 || p.File != 0 || p.Mapped != 0 {
		t.Errorf("before Linux 5.3: %+v, %v", p, err)
	}
}
