package proctree

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

const statRest = " S 10 11 12 0 -1 4194304 10 0 0 0 5 6 0 0 20 0 3 0 4711 8192 2 18446744073709551615 1 1 0 0 0 0\n"

func TestParseStatHostileNames(t *testing.T) {
	for _, comm := range []string{
		"python3", "", " ", ")", "(", "a) Z 1 1 (b", "foo) Z ", "x\ny", "\t", "a (b) c", "tor\xc3", "\xff\xfe", "))) R 1",
	} {
		s, err := parseStat([]byte("7 (" + comm + ")" + statRest))
		if err != nil {
			t.Errorf("%q: %v", comm, err)
			continue
		}
		if string(s.comm) != comm || s.state != 'S' || s.parent != 10 ||
			s.threads != 3 || s.start != 4711 || s.cpu != 110*time.Millisecond || s.kernel {
			t.Errorf("%q: got %q %+v", comm, s.comm, s)
		}
	}
}

func TestParseStatKernelThread(t *testing.T) {
	for flags, want := range map[string]bool{"2129984": true, "4194304": false, "0": false} {
		if s, err := parseStat([]byte("7 (a) b)" + strings.Replace(statRest, "4194304", flags, 1))); s.kernel != want || err != nil {
			t.Errorf("%s: %+v, %v", flags, s, err)
		}
	}
}

func TestParseStatMalformed(t *testing.T) {
	for _, in := range []string{
		"", "7", "7 (x", "7 x)", ")(", "7 (x)", "7 (x) S", "7 (x) S 1 2 3", "7 (x) SS" + statRest[2:],
		"7 (x)" + strings.Replace(statRest, "4711", "4x11", 1),
		"7 (x)" + strings.Replace(statRest, "4711", "99999999999999999999999", 1),
	} {
		if s, err := parseStat([]byte(in)); err == nil {
			t.Errorf("%q: no error, got %+v", in, s)
		}
	}
}

func TestParseStatm(t *testing.T) {
	got, err := parseStatm([]byte("985 775 710 193 0 109 0\n"))
	if want := (statm{985 * pageSize, 775 * pageSize, 710 * pageSize}); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, in := range []string{"", "1", "1 2", "a b c", "1 2 x"} {
		if _, err := parseStatm([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
	if n, err := parseResident([]byte("985 775 710 193 0 109 0\n")); err != nil || n != 775*pageSize {
		t.Errorf("resident %v, %v", n, err)
	}
	for _, in := range []string{"", "1", "1 ", "1 x", " "} {
		if _, err := parseResident([]byte(in)); err == nil {
			t.Errorf("resident of %q: no error", in)
		}
	}
}

func TestParseStatus(t *testing.T) {
	got, err := parseStatus([]byte("Name:\tVmRSS:\t9 kB\nGroups:\t1 2 \nVmSize:\t  4000 kB\nVmLck:\t    40 kB\nVmPin:\t    50 kB\nVmHWM:\t  9000 kB\nVmRSS:\t   600 kB\nRssAnon:\t  100 kB\nRssFile:\t  200 kB\nRssShmem:\t 300 kB\nThreads:\t7\n"))
	want := status{rss: 600 << 10, anon: 100 << 10, file: 200 << 10, shmem: 300 << 10, virtual: 4000 << 10, locked: 40 << 10, pinned: 50 << 10, threads: 7}
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}

	t.Run("zombie", func(t *testing.T) {
		got, err := parseStatus([]byte("Name:\tx\nState:\tZ (zombie)\nThreads:\t1\n"))
		if err != nil || got != (status{threads: 1}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("before Linux 4.5", func(t *testing.T) {
		got, err := parseStatus([]byte("VmRSS:\t 8 kB\nThreads:\t1\n"))
		if err != nil || got != (status{rss: 8192, anon: 8192, threads: 1}) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("counter dips below zero", func(t *testing.T) {
		got, err := parseStatus([]byte("VmRSS:\t 8 kB\nRssAnon:\t 12 kB\nRssFile:\t -4 kB\nThreads:\t1\n"))
		if err != nil || got.file != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	for _, in := range []string{"", "Threads:\n", "VmRSS:\t8 MB\nThreads:\t1\n", "VmRSS:\tx kB\nThreads:\t1\n", "VmRSS:\t8 kB\n", "VmLck:\t8\nThreads:\t1\n", "VmPin:\t\nThreads:\t1\n"} {
		if _, err := parseStatus([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestNumber(t *testing.T) {
	for in, want := range map[string]uint64{"0": 0, "18446744073709551615": 1<<64 - 1, "-5": 0, "007": 7} {
		if n, ok := number([]byte(in)); !ok || n != want {
			t.Errorf("%q: got %d, %v", in, n, ok)
		}
	}
	for _, in := range []string{"", "-", "+1", "18446744073709551616", "1.5", "0x1", "1 "} {
		if n, ok := number([]byte(in)); ok {
			t.Errorf("%q: got %d", in, n)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("7 (x) Z)" + statRest))
	f.Add([]byte(") ("))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStat(b)
		if err != nil {
			return
		}
		if s.parent < 0 && !strings.Contains(string(b), fmt.Sprint(uint64(s.parent))) {
			t.Errorf("parent %d from %q", s.parent, b)
		}
		if !strings.Contains(string(b), "("+string(s.comm)+")") {
			t.Errorf("name %q from %q", s.comm, b)
		}
	})
}

func FuzzParseStatm(f *testing.F) {
	f.Add([]byte("1 2 3 4 5 6 7"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseStatm(b)
		if err == nil && len(b) < 5 {
			t.Errorf("three fields from %q", b)
		}
		// The kernel begins with a number.
		if n, err2 := parseResident(b); err == nil && b[0] > ' ' && bytes.IndexByte(b, ' ') >= 0 &&
			!bytes.ContainsAny(b, "\t\n") && (err2 != nil || n != m.resident) {
			t.Errorf("resident %v, %v and %v from %q", n, err2, m.resident, b)
		}
	})
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte("VmRSS:\t 8 kB\nThreads:\t1\n"))
	f.Add([]byte("VmLck:\t 8 kB\nVmPin:\t 4 kB\nThreads:\t1\n"))
	f.Add([]byte("Tgid:\t7\nUid:\t1000\t1001\t1002\t1003\nThreads:\t1\nCapEff:\t000001fffeffffff\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		has := func(name string) bool { return strings.Contains(string(b), name) }
		if s, err := parseStatus(b); err == nil && (!has("Threads:") || s.locked > 0 && !has("VmLck:") || s.pinned > 0 && !has("VmPin:")) {
			t.Errorf("%+v from %q", s, b)
		}
		sizes, _ := parseSizes(b)
		for name, size := range sizes {
			if !has(name+":") || !has("kB") || size > maxKB*rss.KiB {
				t.Errorf("%s is %v from %q", name, size, b)
			}
		}
		if o, err := parseOwner(b); err == nil && (o.uid < 0 || o.threads < 0 || !has("Tgid") || !has("Uid")) {
			t.Errorf("%+v from %q", o, b)
		}
	})
}

func TestRole(t *testing.T) {
	if role("torch_shm_manag") != rss.RoleShmManager || role("python3") != rss.RoleOther {
		t.Error("roles by name")
	}
}

// What mlock(2) locks shows as Locked, and pins nothing.
func TestLockedOfThisProcess(t *testing.T) {
	const size = rss.MiB / 4 // of the 8 MiB that RLIMIT_MEMLOCK is as a rule, 64 KiB before Linux 5.16
	r := New("/proc")
	defer r.Close()
	before, err := r.One(os.Getpid())
	must(t, err)
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	defer unix.Munmap(b)
	if err := unix.Mlock(b); err != nil {
		t.Skip("cannot lock memory: ", err)
	}
	after, err := r.One(os.Getpid())
	if err != nil || after.Locked != before.Locked+size || after.Pinned != before.Pinned {
		t.Errorf("locked %v and pinned %v, then %v and %v, %v", before.Locked, before.Pinned, after.Locked, after.Pinned, err)
	}
}

func TestProcOf(t *testing.T) {
	p, err := ProcOf("/proc", os.Getpid())
	if err != nil || p.RSS < rss.MiB || p.File == 0 || p.File+p.Shmem >= p.RSS {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := ProcOf("/proc", 1<<30); !Vanished(err) {
		t.Errorf("of no process: %v", err)
	}
}

func TestCostOfThisProcess(t *testing.T) {
	const tick = 10 * time.Millisecond
	var used unix.Rusage
	for used.Utime.Nano()+used.Stime.Nano() < int64(3*tick) {
		must(t, unix.Getrusage(unix.RUSAGE_SELF, &used))
	}
	time.Sleep(time.Millisecond) // a wake-up
	c, err := CostOf("/proc", os.Getpid())
	must(t, err)
	if c.RSS < rss.MiB || c.Anon == 0 || c.Anon > c.RSS || c.PSS == 0 || c.PSS > c.RSS+rss.MiB ||
		c.Threads < 2 || c.Descriptors < 3 || c.CPU == 0 || c.CPU > time.Hour || c.Wakeups == 0 {
		t.Errorf("%+v", c)
	}
	if _, err := CostOf("/proc", 1<<30); !Vanished(err) {
		t.Errorf("of no process: %v", err)
	}
}
