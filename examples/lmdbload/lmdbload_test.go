package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestMain is also lmdbload: its workers and what makes the LMDB start the
// program again, which is this test; and "TEST lmdbload ARG..." is a whole run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "worker", "-create":
			os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		case "lmdbload":
			os.Exit(run(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		}
	}
	dir, err := os.MkdirTemp("", "rsswarden-lmdbload-")
	if err == nil {
		path = filepath.Join(dir, "data.mdb")
		err = ensure(path, 240, 100_000)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// path is one LMDB for all tests.
var path string

var small = []string{"-records", "240", "-bytes", "100000"}

// lmdbload runs the program in this process, and returns its checksum.
func lmdbload(t *testing.T, options ...string) string {
	t.Helper()
	status, stdout, stderr := inProcess(t, append(slices.Clone(small), options...)...)
	sum := wardentest.Checksum(stdout)
	if status != 0 || len(sum) != 32 {
		t.Fatalf("lmdbload %v: status %d, checksum %s\n%s%s", options, status, sum, stdout, stderr)
	}
	return sum
}

func inProcess(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	wardentest.NoError(t, err)
	defer f.Close()
	var out bytes.Buffer
	status = run(args, nil, &out, f)
	b, err := os.ReadFile(f.Name())
	wardentest.NoError(t, err)
	return status, out.String(), string(b)
}

func TestChecksum(t *testing.T) {
	want := lmdbload(t, "-data", path, "-workers", "1")
	for _, tt := range []struct {
		options string
		same    bool
	}{
		{"-workers 2", true},
		{"-workers 7", true},
		{"-workers 3 -growth 500", true},
		{"-seed 2", false},
		{"-batch 7", false},
		{"-epochs 2", false},
	} {
		got := lmdbload(t, append([]string{"-data", path}, strings.Fields(tt.options)...)...)
		if (got == want) != tt.same {
			t.Errorf("%s: checksum %s, with one worker %s", tt.options, got, want)
		}
	}
	if got := lmdbload(t, "-data", filepath.Join(t.TempDir(), "made.mdb"), "-workers", "2"); got != want {
		t.Errorf("from data made again: checksum %s, want %s", got, want)
	}
}

func TestBatchesCoverEachRecordOnce(t *testing.T) {
	var orders [2][]int
	for epoch := range orders {
		for batch, records := range batches(50, 8, 1, epoch) {
			if len(records) != min(8, 50-8*batch) {
				t.Errorf("epoch %d: batch %d has %d records", epoch, batch, len(records))
			}
			orders[epoch] = append(orders[epoch], records...)
		}
		sorted := slices.Sorted(slices.Values(orders[epoch]))
		for i, record := range sorted {
			if len(sorted) != 50 || record != i {
				t.Fatalf("epoch %d reads %v", epoch, sorted)
			}
		}
	}
	if slices.Equal(orders[0], orders[1]) {
		t.Error("two epochs have the same order")
	}
}

func testPool(t *testing.T, n int, path string) *pool {
	t.Helper()
	p, err := newPool(n, workerCommand(path, io.Discard), io.Discard)
	wardentest.NoError(t, err)
	t.Cleanup(p.close)
	return p
}

// digests has one undisturbed worker read the records.
func digests(t *testing.T, records []int) []digest {
	t.Helper()
	p := testPool(t, 1, path)
	d, err := p.read(records)
	wardentest.NoError(t, err)
	return d
}

// TestUnansweredRecordsAreReadAgain ends workers at the worst moment: they hold
// records, and cannot answer, for they are stopped.
func TestUnansweredRecordsAreReadAgain(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			p := testPool(t, 3, path)
			ends := 0
			for batch, records := range batches(240, 24, 1, 0) {
				want := digests(t, records)
				victim := p.workers[batch%3]
				pid := victim.pid()
				if _, err := p.read(records[:1]); err != nil { // all workers are up
					t.Fatal(err)
				}
				syscall.Kill(pid, syscall.SIGSTOP)
				until(t, "a stop", func() bool {
					b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
					wardentest.NoError(t, err)
					return bytes.Contains(b, []byte(") T "))
				})
				// The others answer all that they have; the batch then waits for the
				// victim alone, which the signal ends once it goes on.
				time.AfterFunc(20*time.Millisecond, func() {
					syscall.Kill(pid, sig)
					syscall.Kill(pid, syscall.SIGCONT)
				})
				got, err := p.read(records)
				wardentest.NoError(t, err)
				if !slices.Equal(got, want) {
					t.Fatalf("batch %d: wrong content after %v", batch, sig)
				}
				// SIGTERM is seen after the last record, or between two.
				until(t, "another worker", func() bool {
					wardentest.NoError(t, p.wait(time.Millisecond))
					return p.replaced > ends
				})
				ends = p.replaced
			}
			if ends != 10 {
				t.Errorf("%d workers replaced, want 10", ends)
			}
		})
	}
}

// until waits for a condition.
func until(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// TestKilledFromOutside runs the program as a user does, while its workers are killed by
// their command line, in turn by SIGTERM and SIGKILL.
func TestKilledFromOutside(t *testing.T) {
	want := lmdbload(t, "-data", path, "-epochs", "40")
	cmd := exec.Command(os.Args[0], append([]string{"lmdbload", "-data", path, "-epochs", "40", "-v"}, small...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	wardentest.NoError(t, err)
	wardentest.NoError(t, cmd.Start())
	// One worker after each epoch, while the next one runs.
	var out strings.Builder
	signals := 0
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		fmt.Fprintln(&out, lines.Text())
		pids := children(cmd.Process.Pid)
		if len(pids) == 0 {
			continue
		}
		sig := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[signals%2]
		syscall.Kill(pids[signals%len(pids)], sig)
		signals++
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if got := wardentest.Checksum(out.String()); got != want {
		t.Errorf("checksum %s, undisturbed it is %s\n%s", got, want, &stderr)
	}
	if n := strings.Count(stderr.String(), "replaced by"); n < 5 {
		t.Errorf("%d workers replaced of %d signalled: too few to show anything\n%s", n, signals, &stderr)
	}
}

// children returns the PIDs of the workers below parent, by their command line.
func children(parent int) []int {
	return slices.DeleteFunc(wardentest.Children(parent), func(pid int) bool {
		return !strings.HasPrefix(wardentest.Read(fmt.Sprintf("/proc/%d/cmdline", pid)), "lmdbload\x00worker\x00")
	})
}

func TestWorkersGrowWithWhatTheyRead(t *testing.T) {
	p := testPool(t, 1, path)
	if _, err := p.read([]int{0}); err != nil {
		t.Fatal(err)
	}
	fresh, err := readRSS(p.workers[0].pid())
	wardentest.NoError(t, err)
	if fresh > 32<<20 {
		t.Errorf("a worker that read one record has %d MiB", fresh>>20)
	}
	for _, records := range batches(240, 24, 1, 0) {
		if _, err := p.read(records); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readRSS(p.workers[0].pid())
	wardentest.NoError(t, err)
	// 24 MB of records, all of them in the map now.
	if all < 24_000_000 || all-min(all, fresh) < 10<<20 {
		t.Errorf("RSS %d MiB after one record, %d MiB after all of 24 MB", fresh>>20, all>>20)
	}
}

func TestWorkersEndWithTheirParent(t *testing.T) {
	cmd := exec.Command(os.Args[0], append([]string{"lmdbload", "-data", path, "-epochs", "1000000"}, small...)...)
	wardentest.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var pids []int
	until(t, "4 workers", func() bool { pids = children(cmd.Process.Pid); return len(pids) >= 4 })
	cmd.Process.Kill()
	until(t, "the end of workers without a parent", func() bool {
		pids = slices.DeleteFunc(pids, wardentest.Ended)
		return len(pids) == 0
	})
}

func TestWorkersThatCannotWork(t *testing.T) {
	p := testPool(t, 2, filepath.Join(t.TempDir(), "missing.mdb"))
	if _, err := p.read([]int{1, 2, 3}); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("error %v, want one about workers that end", err)
	}
}

func TestBadUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
		says string
	}{
		{nil, 2, "-data is needed"},
		{[]string{"-data", path, "extra"}, 2, `unexpected argument "extra"`},
		{[]string{"-data", path, "-workers", "0"}, 2, "1 or more"},
		{[]string{"-data", path, "-growth", "NaN"}, 2, "0 or more"},
		{[]string{"-data", path, "-records", "many"}, 2, "invalid value"},
		{[]string{"-data", path, "-unknown"}, 2, "not defined"},
		{[]string{"-data", path, "-create", "-records", "1", "-bytes", "8"}, 1, "holds 240 100000"},
		{[]string{"-data", filepath.Join(t.TempDir(), "no", "such", "directory", "data.mdb")}, 1, "cannot make"},
		{[]string{"-h"}, 0, "-growth"},
	} {
		got, _, stderr := inProcess(t, tt.args...)
		if got != tt.want {
			t.Errorf("%q: status %d, want %d", tt.args, got, tt.want)
		}
		if !strings.Contains(stderr, tt.says) {
			t.Errorf("%q: does not say %q:\n%s", tt.args, tt.says, stderr)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add("12 " + strings.Repeat("ab", 32) + "\n")
	f.Add("12 ab\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, line string) {
		record, content, err := parseAnswer(line)
		if err != nil {
			return
		}
		again, same, err := parseAnswer(fmt.Sprintf("%d %x\n", record, content))
		if err != nil || again != record || same != content {
			t.Errorf("%q is %d %x, which is %d %x, %v", line, record, content, again, same, err)
		}
	})
}

func FuzzParseStatm(f *testing.F) {
	f.Add([]byte("100 25 10 5 0 60 0\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := parseStatm(b); err == nil && len(bytes.Fields(b)) != 7 {
			t.Errorf("took %q", b)
		}
	})
}
