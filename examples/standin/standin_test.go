package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestMain is also the stand-in, "TEST standin ARG...", and the command under
// it, "TEST helper NAME [ARG...]".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "standin" {
		os.Exit(run(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 2 && os.Args[1] == "helper" {
		helper(os.Args[2], os.Args[3:])
	}
	os.Exit(m.Run())
}

func helper(name string, args []string) {
	switch name {
	case "exit":
		n, _ := strconv.Atoi(args[0])
		os.Exit(n)
	case "signal":
		n, _ := strconv.Atoi(args[0])
		unix.Kill(os.Getpid(), unix.Signal(n))
		select {}
	case "rlimit":
		var l unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_RSS, &l)
		fmt.Println(l.Cur, l.Max)
		os.Exit(0)
	case "tree":
		// Two levels, each with a third of the memory; says its PIDs in a directory.
		os.WriteFile(filepath.Join(args[0], strconv.Itoa(os.Getpid())), nil, 0o600)
		if level, _ := strconv.Atoi(args[1]); level > 0 {
			exec.Command(os.Args[0], "helper", "tree", args[0], strconv.Itoa(level-1)).Start()
		}
		held := bytes.Repeat([]byte{1}, 40<<20)
		for {
			time.Sleep(time.Hour)
			held[0]++
		}
	}
	os.Exit(99)
}

// standin runs the stand-in in a process of its own: RLIMIT_RSS once lowered
// cannot be raised again without CAP_SYS_RESOURCE.
func standin(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"standin"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// underLimit runs a helper under the stand-in.
func underLimit(t *testing.T, limit string, helper ...string) (status int, stdout, stderr string) {
	t.Helper()
	return standin(t, append([]string{"-limit", limit, "--", os.Args[0], "helper"}, helper...)...)
}

func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"exit", "0"}, 0},
		{[]string{"exit", "7"}, 7},
		{[]string{"signal", "15"}, 143},
		{[]string{"signal", "9"}, 137},
	} {
		status, _, stderr := underLimit(t, "1G", tt.args...)
		if status != tt.want {
			t.Errorf("%v: status %d, want %d\n%s", tt.args, status, tt.want, stderr)
		}
		first, _, _ := strings.Cut(stderr, "\n")
		if !strings.Contains(first, "stand in for slurmstepd's OverMemoryKill") || !strings.Contains(first, "1073741824") {
			t.Errorf("%v: first line %q does not say what this is", tt.args, first)
		}
		if strings.Contains(stderr, "exceeded") {
			t.Errorf("%v: killed below the limit:\n%s", tt.args, stderr)
		}
	}
}

func TestRlimit(t *testing.T) {
	if _, stdout, _ := underLimit(t, "400M", "rlimit"); stdout != "419430400 419430400\n" {
		t.Errorf("RLIMIT_RSS of the command is %q", stdout)
	}
}

func TestKillsTheTreeAboveTheLimit(t *testing.T) {
	dir := t.TempDir()
	// Each of three processes holds 40 MiB and stays below 100 MiB by itself.
	status, _, stderr := underLimit(t, "100M", "tree", dir, "2")
	if status != 137 {
		t.Errorf("status %d, want 137", status)
	}
	if !strings.Contains(stderr, " > 104857600), being killed") {
		t.Errorf("no word of the kill:\n%s", stderr)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%d processes started, want 3 (%v)", len(entries), err)
	}
	for _, e := range entries {
		pid, _ := strconv.Atoi(e.Name())
		wardentest.Until(t, "the end of "+e.Name(), func() bool { return wardentest.Ended(pid) })
	}
}

func TestBadUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{nil, 2},
		{[]string{"-limit", "400M"}, 2},
		{[]string{"-limit", "much", "--", "true"}, 2},
		{[]string{"-limit", "0", "--", "true"}, 2},
		{[]string{"-unknown"}, 2},
		{[]string{"-h"}, 0},
	} {
		got, _, stderr := standin(t, tt.args...)
		if got != tt.want {
			t.Errorf("%q: status %d, want %d", tt.args, got, tt.want)
		}
		if stderr == "" {
			t.Errorf("%q: says nothing", tt.args)
		}
	}
}

func TestCannotStart(t *testing.T) {
	noExec := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(noExec, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]int{"/nonexistent/command": 127, "no-such-command-anywhere": 127, noExec: 126} {
		if got, _, stderr := standin(t, "-limit", "1G", "--", command); got != want {
			t.Errorf("%s: status %d, want %d\n%s", command, got, want, stderr)
		}
	}
}
