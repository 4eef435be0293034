// Package e2etest is for tests of several packages here: what they run, and what they read.
package e2etest

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// HoldMemory holds as many MiB as each line of its input says, and ends with status 7.
//
//go:embed testdata/hold.py
var HoldMemory string

// HeldRun is a run whose command holds as much memory as the test says.
type HeldRun struct {
	T       *testing.T
	Cmd     *exec.Cmd
	In      io.WriteCloser
	stdout  io.Closer
	out     *bufio.Reader
	Stderr  wardentest.Text
	Dir     string // of its record, runtime directory and events
	Events  string
	Started time.Time
}

// Begin starts the command. It is ended with the test.
func (r *HeldRun) Begin() {
	r.T.Helper()
	out, err := r.Cmd.StdoutPipe()
	if err != nil {
		r.T.Fatal(err)
	}
	r.stdout, r.out = out, bufio.NewReader(out)
	if r.In, err = r.Cmd.StdinPipe(); err != nil {
		r.T.Fatal(err)
	}
	if err := r.Cmd.Start(); err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() {
		if r.Cmd.ProcessState == nil {
			r.In.Close()
			if r.T.Failed() { // it may hang
				_ = r.Cmd.Process.Kill()
				r.Cmd.WaitDelay = time.Second
			}
			_ = r.Cmd.Wait()
		}
	})
}

// Hold has the command hold so many MiB.
func (r *HeldRun) Hold(mib int) {
	r.T.Helper()
	fmt.Fprintln(r.In, mib)
	late := time.AfterFunc(rsstest.Patience, func() { r.stdout.Close() })
	defer late.Stop()
	if line, err := r.out.ReadString('\n'); strings.TrimSpace(line) != strconv.Itoa(mib) {
		r.T.Fatalf("%q, %v\n%s", line, err, r.Stderr.String())
	}
}

// End has the command end and returns how long that took.
func (r *HeldRun) End() time.Duration {
	r.T.Helper()
	began := time.Now()
	r.In.Close()
	err := r.Cmd.Wait()
	took := time.Since(began)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		r.T.Errorf("%v, want the command's exit status 7\n%s", err, r.Stderr.String())
	}
	return took
}

// Status asks for the status; nil where there is no answer yet.
func (r *HeldRun) Status() *control.Status {
	cmd := exec.Command(wardentest.Program(r.T, wardentest.Rsswarden), "status", "--json")
	cmd.Env = append(os.Environ(), "RSSWARDEN_RUNTIME="+r.Dir)
	out, _ := cmd.Output() // one of others' runs may not answer
	var all struct{ Nodes []*control.Status }
	if err := json.Unmarshal(out, &all); err != nil {
		return nil
	}
	for _, st := range all.Nodes {
		if len(st.Ranks) == 1 && st.Ranks[0].Holder == r.Cmd.Process.Pid {
			return st // others may run beside it
		}
	}
	return nil
}

// Examined is what `doctor --json` printed, and what finds a check in it.
func Examined(t testing.TB, stdout string) (r doctor.Report, of func(name string) doctor.Check) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v: %q", err, stdout)
	}
	return r, func(name string) doctor.Check {
		i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Name == name })
		if i < 0 {
			t.Errorf("no check %s in %s", name, stdout)
			return doctor.Check{}
		}
		return r.Checks[i]
	}
}
