// Package train_test runs the PyTorch example the way its users do, and checks
// what it promises: one checksum whatever the workers are, growth of the kind
// each option names, and a checkpoint that goes on where it stopped.
package train_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const python = "/usr/bin/python3"

// small is a data set that one epoch reads in well under a second.
var small = []string{"--records", "600", "--record-bytes", "16384", "--batch", "16", "--epochs", "3"}

var dataPath string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rsswarden-train-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	dataPath = filepath.Join(dir, "small.lmdb")
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

func needTorch(t *testing.T) {
	t.Helper()
	torchtest.Torch113.Need(t)
	if _, err := os.Stat(dataPath); err != nil {
		out, err := exec.Command(python, "data.py", dataPath, "--records", "600", "--record-bytes", "16384").CombinedOutput()
		if err != nil {
			t.Fatalf("data.py: %v\n%s", err, out)
		}
	}
}

func trainer(t *testing.T, options ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rsstest.Patience)
	t.Cleanup(cancel)
	args := append([]string{"-W", "ignore", "train.py", "--data", dataPath}, small...)
	return exec.CommandContext(ctx, python, append(args, options...)...)
}

// run trains and returns stdout; it fails the test where the status is not want.
func run(t *testing.T, want int, options ...string) string {
	t.Helper()
	cmd := trainer(t, options...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Fatalf("train.py %v: status %d, want %d\n%s%s", options, got, want, &stdout, &stderr)
	}
	return stdout.String() + stderr.String()
}

func checksum(t *testing.T, out string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^checksum ([0-9a-f]{32})$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no checksum in:\n%s", out)
	}
	return m[1]
}

func TestChecksumIgnoresWorkers(t *testing.T) {
	needTorch(t)
	for _, family := range []struct {
		name     string
		common   []string
		variants []string
		often    int // how many are tried without RSSWARDEN_ENDURANCE
	}{
		{"lmdb", nil, []string{
			"--workers 4 --endless", "--workers 2 --leak-worker 8 --leak-trainer 8 --cow 1000", "--workers 2 --persistent --start spawn",
			"--workers 1", "--workers 4", "--workers 3 --persistent", "--workers 2 --start default --in-memory",
		}, 2},
		{"plain file too", []string{"--plain-file"}, []string{"--workers 4 --persistent", "--workers 1", "--workers 4 --endless"}, 1},
		{"part of the records", []string{"--epoch-fraction", "0.3"}, []string{"--workers 4 --persistent"}, 1},
	} {
		t.Run(family.name, func(t *testing.T) {
			t.Parallel()
			want := checksum(t, run(t, 0, append(family.common, "--workers", "0")...))
			for _, variant := range family.variants[:wardentest.Few(len(family.variants), family.often)] {
				t.Run(variant, func(t *testing.T) {
					t.Parallel()
					got := checksum(t, run(t, 0, append(family.common, strings.Fields(variant)...)...))
					if got != want {
						t.Errorf("checksum %s, with --workers 0 it is %s", got, want)
					}
				})
			}
		})
	}
}

func TestChecksumSeesOrder(t *testing.T) {
	needTorch(t)
	t.Parallel()
	a := checksum(t, run(t, 0, "--workers", "0"))
	b := checksum(t, run(t, 0, "--workers", "0", "--seed", "2"))
	if a == b {
		t.Errorf("the checksum is %s for two seeds", a)
	}
}

// rss returns what the last epoch's line says of trainer and children, in MiB.
func rss(t *testing.T, out string) (trainer, children int) {
	t.Helper()
	all := regexp.MustCompile(`RSS (\d+) MiB \+ children (\d+) MiB`).FindAllStringSubmatch(out, -1)
	if len(all) != 3 {
		t.Fatalf("%d epoch lines, want 3:\n%s", len(all), out)
	}
	trainer, _ = strconv.Atoi(all[2][1])
	children, _ = strconv.Atoi(all[2][2])
	return trainer, children
}

func TestLeaks(t *testing.T) {
	needTorch(t)
	t.Parallel()
	const slack = 25 // MiB: two runs differ by arenas and mapped libraries
	trainer0, children0 := rss(t, run(t, 0, "--workers", "2", "--persistent"))
	for _, tt := range []struct {
		option            []string
		trainer, children int // more than without the option, MiB
	}{
		// 3 epochs of 600 records; of 38 batches.
		{[]string{"--leak-worker", "100"}, 0, 1800 * 100 / 1024},
		{[]string{"--leak-trainer", "1500"}, 114 * 1500 / 1024, 0},
	} {
		t.Run(tt.option[0], func(t *testing.T) {
			t.Parallel()
			trainer, children := rss(t, run(t, 0, append(tt.option, "--workers", "2", "--persistent")...))
			if d := trainer - trainer0 - tt.trainer; d < -slack || d > slack {
				t.Errorf("trainer: %d MiB more than without, want %d", trainer-trainer0, tt.trainer)
			}
			if d := children - children0 - tt.children; d < -slack || d > slack {
				t.Errorf("workers: %d MiB more than without, want %d", children-children0, tt.children)
			}
		})
	}
}

// started is a trainer that runs; its stdout is read line by line.
type started struct {
	*exec.Cmd
	lines *bufio.Scanner
	out   bytes.Buffer
}

func start(t *testing.T, options ...string) *started {
	t.Helper()
	s := &started{Cmd: trainer(t, options...)}
	stdout, err := s.StdoutPipe()
	wardentest.NoError(t, err)
	s.Stderr = os.Stderr
	s.lines = bufio.NewScanner(stdout)
	wardentest.NoError(t, s.Start())
	return s
}

// until reads lines until one starts with prefix, or to the end where it is empty.
func (s *started) until(t *testing.T, prefix string) {
	t.Helper()
	for s.lines.Scan() {
		fmt.Fprintln(&s.out, s.lines.Text())
		if prefix != "" && strings.HasPrefix(s.lines.Text(), prefix) {
			return
		}
	}
	if prefix != "" {
		t.Fatalf("no line %q:\n%s", prefix, &s.out)
	}
}

func TestCopyOnWriteList(t *testing.T) {
	needTorch(t)
	t.Parallel()
	for _, tt := range []struct {
		option   string
		min, max int // MiB of private dirty memory in the worker after 3 epochs
	}{
		{"--cow=0", 1, 24},
		{"--cow=400000", 40, 200},
	} {
		t.Run(tt.option, func(t *testing.T) {
			s := start(t, tt.option, "--workers", "1", "--persistent", "--epochs", "1000000")
			defer func() { s.Process.Kill(); s.Wait() }()
			s.until(t, "epoch 2:")
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.Process.Pid))
			if err != nil {
				t.Skipf("this kernel does not list children: %v", err)
			}
			pids := strings.Fields(string(children))
			if len(pids) != 1 {
				t.Fatalf("children %q, want one worker", pids)
			}
			rollup, err := os.ReadFile("/proc/" + pids[0] + "/smaps_rollup")
			wardentest.NoError(t, err)
			m := regexp.MustCompile(`Private_Dirty: +(\d+) kB`).FindSubmatch(rollup)
			if m == nil {
				t.Fatalf("no Private_Dirty in:\n%s", rollup)
			}
			kB, _ := strconv.Atoi(string(m[1]))
			if kB < tt.min<<10 || kB > tt.max<<10 {
				t.Errorf("Private_Dirty %d MiB, want %d to %d", kB>>10, tt.min, tt.max)
			}
		})
	}
}

func TestCheckpoint(t *testing.T) {
	needTorch(t)
	want := checksum(t, run(t, 0, "--workers", "0"))
	for _, loader := range []string{"--workers 0", "--workers 2 --persistent", "--workers 2 --endless"} {
		t.Run(loader, func(t *testing.T) {
			if strings.Contains(loader, "endless") {
				wardentest.Long(t)
			}
			t.Parallel()
			file := filepath.Join(t.TempDir(), "checkpoint")
			options := append(strings.Fields(loader), "--checkpoint", file)
			s := start(t, append(options, "--step-ms", "20")...)
			s.until(t, "epoch 0:")
			wardentest.NoError(t, s.Process.Signal(syscall.SIGUSR2))
			s.until(t, "")
			s.Wait()
			if got := s.ProcessState.ExitCode(); got != 99 {
				t.Fatalf("status %d after SIGUSR2, want 99\n%s", got, &s.out)
			}
			out := run(t, 0, options...)
			if !strings.Contains(out, "resumed from "+file) {
				t.Errorf("did not resume:\n%s", out)
			}
			if got := checksum(t, out); got != want {
				t.Errorf("checksum %s, in one run it is %s", got, want)
			}
			if loader != "--workers 0" {
				return
			}
			if got := checksum(t, run(t, 0, options...)); got != want {
				t.Errorf("started again at the end: checksum %s, want %s", got, want)
			}
			if out := run(t, 1, append(options, "--seed", "2")...); !strings.Contains(out, "is of another run") {
				t.Errorf("took the checkpoint of another seed:\n%s", out)
			}
		})
	}
}

func TestBadUsage(t *testing.T) {
	needTorch(t)
	t.Parallel()
	for _, tt := range []struct {
		options string
		status  int
		says    string
	}{
		{"--workers 0 --persistent", 2, "need --workers 1 or more"},
		{"--persistent --endless", 2, "not both"},
		{"--workers 2 --plain-file", 2, "share its offset"},
		{"--records 601", 1, "error: " + dataPath + " holds 600 16384"},
	} {
		out := run(t, tt.status, strings.Fields(tt.options)...)
		if !strings.Contains(out, tt.says) {
			t.Errorf("%s: no %q in:\n%s", tt.options, tt.says, out)
		}
	}
}

// ranksOf starts that many ranks of ddp.py, as torchrun would. torchrun itself
// is run by the tests of the program.
func ranksOf(t *testing.T, n int, options ...string) (ranks []*exec.Cmd, outs []*bytes.Buffer) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	wardentest.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	for rank := range n {
		args := append([]string{"-W", "ignore", "ddp.py", "--data", dataPath}, small...)
		cmd := exec.Command(python, append(args, options...)...)
		cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "MASTER_ADDR=127.0.0.1",
			fmt.Sprintf("MASTER_PORT=%d", port), fmt.Sprintf("WORLD_SIZE=%d", n), fmt.Sprintf("RANK=%d", rank),
			fmt.Sprintf("LOCAL_RANK=%d", rank))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		wardentest.NoError(t, cmd.Start())
		t.Cleanup(func() {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			cmd.Wait()
		})
		ranks, outs = append(ranks, cmd), append(outs, &out)
	}
	return ranks, outs
}

// trained waits for all ranks and returns rank 0's checksum.
func trained(t *testing.T, ranks []*exec.Cmd, outs []*bytes.Buffer) string {
	t.Helper()
	for i, cmd := range ranks {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("rank %d: %v\n%s", i, err, outs[i])
		}
	}
	return checksum(t, outs[0].String())
}

// TestRanksResume: a checkpoint that one rank was asked for is one from which
// all go on, and arrive where they would have without it.
func TestRanksResume(t *testing.T) {
	needTorch(t)
	file := filepath.Join(t.TempDir(), "checkpoint")
	plain, outs := ranksOf(t, 2, "--workers", "0")
	want := trained(t, plain, outs)

	ranks, _ := ranksOf(t, 2, "--workers", "0", "--checkpoint", file, "--step-ms", "50")
	var first os.FileInfo
	for deadline := time.Now().Add(rsstest.Patience); ; time.Sleep(5 * time.Millisecond) {
		now, err := os.Stat(file)
		switch {
		case err != nil: // no epoch has ended
		case first == nil:
			first = now
			wardentest.NoError(t, ranks[1].Process.Signal(syscall.SIGUSR2))
		}
		if err == nil && !os.SameFile(first, now) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no checkpoint in time")
		}
	}
	for _, cmd := range ranks {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	}
	again, outs := ranksOf(t, 2, "--workers", "2", "--checkpoint", file)
	if got := trained(t, again, outs); got != want {
		t.Errorf("checksum %s after a resume, want %s", got, want)
	}
	for rank, out := range outs {
		if !strings.Contains(out.String(), fmt.Sprintf("rank %d: resumed at epoch 1, batch ", rank)) ||
			strings.Contains(out.String(), "batch 0\n") {
			t.Errorf("rank %d did not resume within an epoch:\n%s", rank, out)
		}
	}
}

// TestGPUWithoutGPU: what `make gpu` runs says why it cannot here, and compares as it
// would on a GPU when it may use the processor.
func TestGPUWithoutGPU(t *testing.T) {
	t.Parallel()
	needTorch(t)
	program := wardentest.Program(t, wardentest.Rsswarden)
	cmd := exec.Command(python, "gpu.py", "--rsswarden", program)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "CUDA_VISIBLE_DEVICES=")
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != 77 || !strings.HasPrefix(string(out), "skipped: torch ") {
		t.Errorf("without a GPU: status %d\n%s", got, out)
	}

	// Accelerate alone has a test beside its example.
	for suite, only := range map[debian.Suite]string{debian.Trixie: "train", debian.Sid: "accelerate,transformers"} {
		t.Run(only, func(t *testing.T) {
			if suite == debian.Sid {
				wardentest.Long(t)
			}
			t.Parallel()
			cmd := debian.Need(t, suite).Command("python3", "gpu.py", "--rsswarden", program, "--device", "cpu", "--only", only,
				"--records", "1200", "--epochs", "4", "--step-ms", "30")
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			out, _ := cmd.CombinedOutput()
			recycled := regexp.MustCompile(`(?m)^  workers recycled [1-9]`).FindAll(out, -1)
			if got := cmd.ProcessState.ExitCode(); got != 0 || len(recycled) != strings.Count(only, ",")+1 {
				t.Errorf("status %d\n%s", got, out)
			}
		})
	}
}
