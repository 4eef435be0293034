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
