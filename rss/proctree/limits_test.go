package proctree

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

const limitsText = `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max resident set          734003200            unlimited            bytes     
Max processes             96365                96366                processes 
Max open files            20000                20001                files     
Max locked memory         8388608              8388609              bytes     
Max address space         unlimited            unlimited            bytes     
Max nice priority         0                    0                    
`

func TestParseResourceLimits(t *testing.T) {
	got, err := parseResourceLimits([]byte(limitsText))
	if want := (rss.ResourceLimits{AddressSpace: rss.Unlimited, LockedMemory: 8 * rss.MiB, Tasks: 96365, Descriptors: 20000}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = parseResourceLimits([]byte("Max open files 0 0 files\n"))
	if want := (rss.ResourceLimits{AddressSpace: rss.Unlimited, LockedMemory: rss.Unlimited, Tasks: rss.Unlimited, Descriptors: 0}); err != nil || got != want {
		t.Errorf("of one line: %+v, %v", got, err)
	}
	for _, in := range []string{"", "Limit\n", "Max open files \n", "Max processes -1 0 processes\n", "Max address space 1k 2 bytes\n"} {
		if got, err := parseResourceLimits([]byte(in)); err == nil {
			t.Errorf("%q: %+v", in, got)
		}
	}
}

func FuzzParseResourceLimits(f *testing.F) {
	f.Add([]byte(limitsText))
	f.Add([]byte("Max processes unlimited"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseResourceLimits(b)
		if err == nil && l.Tasks != rss.Unlimited && !bytes.Contains(b, []byte("Max processes ")) {
			t.Errorf("%+v from %q", l, b)
		}
	})
}

func TestLimitsOfProcesses(t *testing.T) {
	l, err := Limits("/proc", os.Getpid())
	must(t, err)
	for which, got := range map[int]uint64{
		unix.RLIMIT_AS: uint64(l.AddressSpace), unix.RLIMIT_MEMLOCK: uint64(l.LockedMemory),
		unix.RLIMIT_NPROC: l.Tasks, unix.RLIMIT_NOFILE: l.Descriptors,
	} {
		var own unix.Rlimit
		if err := unix.Getrlimit(which, &own); err != nil || own.Cur != got {
			t.Errorf("limit %d: %d, and getrlimit says %d, %v", which, got, own.Cur, err)
		}
	}
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	if l, err := Limits(fs.Proc, rsstest.Trainer); err != nil || l != (rss.ResourceLimits{AddressSpace: rss.Unlimited, LockedMemory: rss.Unlimited, Tasks: rss.Unlimited, Descriptors: 20000}) {
		t.Errorf("of the archive: %+v, %v", l, err)
	}
	if n, err := ResidentLimit(fs.Proc, rsstest.Trainer); err != nil || n != uint64(700*rss.MiB) {
		t.Errorf("RLIMIT_RSS of the archive: %d, %v", n, err)
	}
	fs.Write("proc/4102/limits", "")
	if _, err := Limits(fs.Proc, rsstest.Trainer); !Vanished(err) {
		t.Errorf("while it is reaped: %v", err)
	}
	fs.End(rsstest.Trainer)
	if _, err := Limits(fs.Proc, rsstest.Trainer); !Vanished(err) {
		t.Errorf("of no process: %v", err)
	}
}
