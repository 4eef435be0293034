package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const python = "/usr/bin/python3" // Debian's, which has torch and lmdb

// needTorch skips the test where there is no PyTorch.
func needTorch(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import torch, lmdb").CombinedOutput(); err != nil {
		t.Skipf("no PyTorch with LMDB in %s: %v %s", python, err, out)
	}
}

// stand is a cluster with the trainer of examples/train on it.
type stand struct {
	*slurmtest.Cluster
	rsswarden, train, data string
	records                []string // the options that make the data
}

// trainStand gives a test a cluster with the trainer and its LMDB of 1.44 GB.
func trainStand(t *testing.T, mode slurmtest.Mode) stand {
	t.Helper()
	needTorch(t)
	return trainStandOn(t, mode, slurmtest.Options{})
}

func trainStandOn(t *testing.T, mode slurmtest.Mode, options slurmtest.Options) stand {
	t.Helper()
	options.CPUs, options.RealMemory = 4, 20000
	c := slurmtest.Start(t, mode, options)
	s := stand{Cluster: c, rsswarden: c.Install(t, binary)}
	s.train = c.Install(t, "../../examples/train/train.py")
	c.Install(t, "../../examples/train/data.py")
	s.data = filepath.Join(c.Dir(), "train.lmdb")
	s.records = []string{"--data", s.data, "--records", "12000", "--record-bytes", "120000"}
	if _, err := os.Stat(s.data); err != nil {
		args := append([]string{s.train, "--epochs", "0", "--workers", "0"}, s.records...)
		if got := c.Do(t, python, args...); got.Code != 0 {
			t.Fatalf("cannot make the data: %+v", got)
		}
	}
	return s
}

// script is a job that trains, under rsswarden where wrap says so.
func (s stand) script(wrap string, options ...string) string {
	return "exec " + wrap + " " + s.training(options...)
}

// training is the command line of the trainer.
func (s stand) training(options ...string) string {
	return fmt.Sprintf("%s %s %s %s", python, s.train, strings.Join(s.records, " "), strings.Join(options, " "))
}

var sumLine = regexp.MustCompile(`(?m)^checksum (\w+)$`)

func checksum(text string) string {
	if m := sumLine.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "none"
}

// reference is the checksum of a run that nothing limits.
func (s stand) reference(t *testing.T, options ...string) string {
	t.Helper()
	got := s.Do(t, python, append(append([]string{s.train}, s.records...), options...)...)
	if got.Code != 0 || checksum(got.Stdout) == "none" {
		t.Fatalf("the run without a limit failed: %+v", got)
	}
	return checksum(got.Stdout)
}

// events reads the lines of --events.
func events(t *testing.T, path string) map[event.Name][]map[string]any {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[event.Name][]map[string]any{}
	for line := range bytes.Lines(b) {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		name := event.Name(e["event"].(string))
		all[name] = append(all[name], e)
	}
	return all
}

// TestSlurmLinux is the job that started it all: slurmstepd sums RSS over the
// tree, and four persistent workers that map 1.44 GB pass 3000 MB in seconds.
func TestSlurmLinux(t *testing.T) {
	s := trainStand(t, slurmtest.Linux)
	for _, shape := range []string{"--persistent", "--endless"} {
		t.Run(shape, func(t *testing.T) {
			options := []string{shape, "--workers", "4", "--epochs", "4"}
			want := s.reference(t, options...)
			if bare := s.Submit(t, s.script("", options...), "--mem=3000").Wait(t); bare.State != "FAILED" || bare.Signal != 9 {
				t.Errorf("bare: %s %d:%d, want FAILED 0:9: the test proves nothing", bare.State, bare.ExitCode, bare.Signal)
			}
			got := s.carried(t, want, s.script(s.rsswarden+" run --events $PWD/events --", options...), "--mem=3000")
			if shape == "--persistent" {
				sampleShown(t, "What you see on stderr", got.Stderr)
			}
		})
	}
}

// carried runs a wrapped job and wants it to end well, with that checksum.
func (s stand) carried(t *testing.T, want, script string, args ...string) slurmtest.Result {
	t.Helper()
	return s.completed(t, want, s.Submit(t, script, args...).Wait(t))
}

// completed wants a job to have ended well, with that checksum.
func (s stand) completed(t *testing.T, want string, got slurmtest.Result) slurmtest.Result {
	t.Helper()
	t.Logf("%s %d:%d\n%s%s", got.State, got.ExitCode, got.Signal, got.Stdout, said(got.Stderr))
	if got.State != "COMPLETED" || got.ExitCode != 0 || got.Signal != 0 {
		t.Errorf("wrapped: %s %s %d:%d, want COMPLETED 0:0\n%s", got.State, got.Reason, got.ExitCode, got.Signal, got.Stderr)
	}
	if sum := checksum(got.Stdout); sum != want {
		t.Errorf("wrapped: checksum %s, want %s", sum, want)
	}
	return got
}

// said returns our own lines.
func said(stderr string) string {
	var ours strings.Builder
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "rsswarden: ") {
			ours.WriteString(line)
		}
	}
	return ours.String()
}

// TestSlurmCgroup: a dataset that leaks in its workers fills the job's cgroup.
// One kernel OOM kill would mark the job OUT_OF_MEMORY.
func TestSlurmCgroup(t *testing.T) {
	s := trainStand(t, slurmtest.Cgroup)
	options := []string{"--persistent", "--workers", "4", "--epochs", "4", "--leak-worker", "60"}
	want := s.reference(t, options...)
	if bare := s.Submit(t, s.script("", options...), "--mem=1500", "--no-requeue").Wait(t); bare.State != "OUT_OF_MEMORY" {
		t.Errorf("bare: %s, want OUT_OF_MEMORY: the test proves nothing", bare.State)
	}
	s.carried(t, want, s.script(s.rsswarden+" run --", options...), "--mem=1500", "--no-requeue")
}
