package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// modes are what this test binary is in a guest, by its first argument.
var modes = map[string]func() int{
	"true": func() int { return 0 },
	"tell": tell,
	"kill": func() int {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		return 1
	},
	"hang": func() int {
		time.Sleep(time.Hour)
		return 0
	},
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && modes[os.Args[1]] != nil {
		os.Exit(modes[os.Args[1]]())
	}
	os.Exit(m.Run())
}

// tell says what it was given, and ends its last line with no newline.
func tell() int {
	for _, a := range os.Args[2:] {
		fmt.Printf("arg %q\n", a)
	}
	for _, name := range []string{"HOME", "SPACED", "EMPTY", "OURS"} {
		v, ok := os.LookupEnv(name)
		fmt.Printf("env %s %q %v\n", name, v, ok)
	}
	for _, name := range []string{"/in/a file", "/sys/fs/cgroup/cgroup.subtree_control"} {
		b, err := os.ReadFile(name)
		fmt.Printf("file %q %v\n", b, err)
	}
	var fs syscall.Statfs_t
	err := syscall.Statfs("/disk", &fs)
	fmt.Printf("disk %x %v %v\n", fs.Type, fs.Blocks*uint64(fs.Bsize) > 50<<20, err)
	fmt.Printf("uid %d\n", os.Getuid())
	fmt.Fprint(os.Stderr, "tab\tcarriage\rno newline")
	return 7
}

func TestRun(t *testing.T) {
	binary := TestBinary(t)
	file := filepath.Join(t.TempDir(), "here")
	if err := os.WriteFile(file, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OURS", "is not the guest's")
	args := []string{"two words", `it's "quoted" $HOME \n`, "", "two\nlines", "*"}
	got, exit := Run(t, Options{
		Binary: binary, Args: append([]string{"tell"}, args...),
		Env:    []string{"SPACED=a  b'c", "EMPTY="},
		Files:  map[string]string{"/in/a file": file},
		DiskMB: 64,
	})
	var want strings.Builder
	for _, a := range args {
		fmt.Fprintf(&want, "arg %q\n", a)
	}
	want.WriteString(`env HOME "/root" true
env SPACED "a  b'c" true
env EMPTY "" true
env OURS "" false
file "content" <nil>
file "cpu memory pids\n" <nil>
disk ef53 true <nil>
uid 0
` + "tab\tcarriage\rno newline")
	if got != want.String() || exit != 7 {
		t.Errorf("got status %d, want 7; it said\n%q, want\n%q", exit, got, want.String())
	}

	for mode, status := range map[string]int{"true": 0, "kill": 128 + 9} {
		if got, exit := Run(t, Options{Binary: binary, Args: []string{mode}}); got != "" && mode == "true" || exit != status {
			t.Errorf("%s: got status %d, want %d; it said %q", mode, exit, status, got)
		}
	}
}

func TestProgramThatHangs(t *testing.T) {
	binary := TestBinary(t)
	dir := t.TempDir()
	for tries := 1; ; tries++ {
		r, err := need(t, "").run(dir, Options{Binary: binary, Args: []string{"hang"}, Timeout: time.Second})
		if errors.Is(err, errNoBoot) && tries < mostTries {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "had not ended after 1s") {
			t.Errorf("got %v, status %d, console %q", err, r.exit, r.console)
		}
		return
	}
}

// A guest that fails tells so, by a QEMU that is a script.
func TestGuestThatFails(t *testing.T) {
	binary := TestBinary(t)
	for _, c := range []struct{ name, script, want string }{
		{"ends at once", "echo kernel panic; exit 3", "the guest has not booted: it ended, QEMU: exit status 3"},
		{"hangs in its boot", "echo kernel; exec sleep 1000", "the guest has not booted after 1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := *need(t, "")
			m.qemu, m.bootLimit = filepath.Join(t.TempDir(), "qemu"), time.Second
			if err := os.WriteFile(m.qemu, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			r, err := m.run(t.TempDir(), Options{Binary: binary})
			if !errors.Is(err, errNoBoot) || err.Error() != c.want || !strings.Contains(r.console, "kernel") {
				t.Errorf("got %v, console %q, want %s", err, r.console, c.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for console, want := range map[string]struct {
		output string
		exit   int
		ok     bool
	}{
		"kernel\r\nw begin\na\nb\n\nw exit 7\nPower down\r\n": {"a\nb\n", 7, true},
		"w begin\n\nw exit 0\n":                               {"", 0, true},
		"w begin\na\nw exit 137\n":                            {"a", 137, true},
		"w begin\na":                                          {},
		"w begin\na\nw exit 1":                                {}, // perhaps the beginning of 137
		"w begin\na\nw exit \n":                               {},
		"w exit 0\n":                                          {},
		"w begin\nother w exit 0\n":                           {},
		"init: mount: it failed\n":                            {},
		"w begin\na\nww exit 1\n":                             {},
		"w begin\n\nw exit 0 or so\n":                         {},
	} {
		r := result{console: console}
		exit, ok := r.parse("w")
		if r.output != want.output || exit != want.exit || ok != want.ok {
			t.Errorf("%q: got %q, %d, %v", console, r.output, exit, ok)
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	binary := TestBinary(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n# longer than a program's header\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"bad magic number":     {Binary: script},
		"is not static":        {Binary: "/bin/sh"},
		"is not KEY=value":     {Binary: binary, Env: []string{"=x"}},
		"holds a zero byte":    {Binary: binary, Args: []string{"a\x00b"}},
		"no such file":         {Binary: binary, Files: map[string]string{"/a": script + "s"}},
		"is no regular file":   {Binary: binary, Files: map[string]string{"/a": "/dev"}},
		"no such file or dire": {Binary: binary + "s"},
	} {
		if _, err := need(t, "").run(t.TempDir(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestClock(t *testing.T) {
	const cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.20GHz\ncpu MHz\t\t: 2199.998\ncache size\t: 8 KB\n\nprocessor\t: 1\ncpu MHz\t\t: 800.000\n"
	if got, err := clockOf([]byte(cpuinfo)); got != 2199998 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
	if got, err := clockOf([]byte("processor\t: 0\nBogoMIPS\t: 50.00\n")); err == nil {
		t.Errorf("got %d without a clock", got)
	}
}
