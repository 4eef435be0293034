package proctree

import (
	"os"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestEnding(t *testing.T) {
	for name, expect := range map[string]func(rss.ProcID) *Ending{
		"pidfd":     func(id rss.ProcID) *Ending { return Expect("/proc", id) },
		"Linux 5.2": func(id rss.ProcID) *Ending { return &Ending{proc: "/proc", id: id, fd: -1} },
	} {
		t.Run(name, func(t *testing.T) {
			p, id := rsstest.Sleeper(t)
			e := expect(id)
			if e.Wait(time.Millisecond) || !Lives("/proc", id) {
				t.Fatal("it lives")
			}
			p.Process.Kill() // and is not waited for: a zombie has ended
			if !e.Wait(time.Minute) || Lives("/proc", id) {
				t.Error("the end was not seen")
			}
		})
	}
	_, id := rsstest.Sleeper(t)
	if id.Start--; !Expect("/proc", id).Wait(0) {
		t.Error("the PID was given to another process")
	}
}

// TestEndingKeepsNoDescriptor: a job is followed for days.
func TestEndingKeepsNoDescriptor(t *testing.T) {
	count := func() (n int) {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		for _, name := range names {
			// Tests before this one may close other descriptors meanwhile.
			if to, _ := os.Readlink("/proc/self/fd/" + name.Name()); to == "anon_inode:[pidfd]" {
				n++
			}
		}
		return n
	}
	p, id := rsstest.Sleeper(t)
	before := count()
	for range 20 {
		e := Expect("/proc", id)
		e.Wait(time.Microsecond)
		e.Close()
	}
	p.Process.Kill()
	Expect("/proc", id).Wait(time.Minute)
	if after := count(); after > before {
		t.Errorf("%d descriptors, were %d", after, before)
	}
}
