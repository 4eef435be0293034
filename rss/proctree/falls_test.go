package proctree_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// TestRSSFalls: what is read is what is resident now, and falls with it. VmHWM and
// ru_maxrss, which others read, never do.
//
// A9: a peak taken for the present.
func TestRSSFalls(t *testing.T) {
	r := reader(t, "/proc")
	resident := func() rss.Bytes {
		t.Helper()
		p, err := r.One(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return p.RSS
	}
	const size = 64 << 20
	before := resident()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	risen := resident()
	if err := unix.Munmap(b); err != nil {
		t.Fatal(err)
	}
	fallen := resident()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	const slack = 16 * rss.MiB // the runtime's own
	if risen < before+size-slack || fallen > risen-size+slack {
		t.Errorf("%v, with %v more %v, without %v", before, rss.Bytes(size), risen, fallen)
	}
	if peak := rss.Bytes(usage.Maxrss) << 10; peak < risen-slack {
		t.Errorf("ru_maxrss is %v and fell too", peak)
	}
}
