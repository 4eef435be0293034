package train_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
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
