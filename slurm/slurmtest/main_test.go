package slurmtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		if err := hold(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "hold-cluster" {
		if err := holdCluster(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if err := slurmtest.Shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// holdCluster starts a cluster with a job on all its nodes, prints the cluster's
// folder, then each node and a PID of the job there, and sleeps until it
// is killed.
func holdCluster(nodes string) error {
	n, err := strconv.Atoi(nodes)
	if err != nil {
		return err
	}
	c, err := slurmtest.Up(context.Background(), slurmtest.Linux, slurmtest.Options{Nodes: n})
	if err != nil {
		return err
	}
	srun := c.Command(context.Background(), "srun", "-N"+nodes, "-n"+nodes, "bash", "-c", "echo $SLURMD_NODENAME $$; exec sleep 1000")
	out, err := srun.StdoutPipe()
	if err != nil {
		return err
	}
	// A killed process cleans nothing up, and an srun without its cluster waits for ever.
	runtime.LockOSThread()
	if srun.SysProcAttr == nil {
		srun.SysProcAttr = &syscall.SysProcAttr{}
	}
	srun.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := srun.Start(); err != nil {
		return err
	}
	fmt.Println(filepath.Dir(c.Dir()))
	for range n {
		var node string
		var pid int
		if _, err := fmt.Fscan(out, &node, &pid); err != nil {
			return err
		}
		fmt.Println(node, pid)
	}
	select {}
}

// hold is a process of a job. It takes memory as its arguments say, writes its
// PID to a file of its name, and sleeps until it is killed:
//
//	hold NAME [anon=MIB] [map=FILE] [shm=MIB] [threads=N] [zombie=1] [virtual=MIB]
//		[adopt=NAME,ARGUMENT,…] [exit=STATUS]
//
// On SIGUSR1 it gives its anonymous memory back and writes its PID to
// NAME.freed.
func hold(args []string) error {
	name := args[0]
	var anon []byte
	var err error
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "anon":
			if anon, err = mapped(-1, n<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON); err != nil {
				return err
			}
		case "shm":
			if _, err = mapped(-1, n<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON); err != nil {
				return err
			}
		case "map":
			f, err := os.Open(value)
			if err != nil {
				return err
			}
			info, err := f.Stat()
			if err != nil {
				return err
			}
			if _, err = mapped(int(f.Fd()), int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED); err != nil {
				return err
			}
		case "virtual":
			if _, err = syscall.Mmap(-1, 0, n<<20, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE); err != nil {
				return err
			}
		case "threads":
			for range n {
				go func() {
					runtime.LockOSThread()
					select {}
				}()
			}
			for {
				if tasks, _ := os.ReadDir("/proc/self/task"); len(tasks) > n {
					break
				}
				runtime.Gosched()
			}
		case "zombie":
			if _, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{}); err != nil {
				return err
			}
		case "adopt": // a subreaper gets the child of a child back
			const setChildSubreaper = 36
			if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
				return errno
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			grandchild := append([]string{"-c", `"$0" hold "$@" &`, self}, strings.Split(value, ",")...)
			if err := exec.Command("/bin/sh", grandchild...).Run(); err != nil {
				return err
			}
		case "exit":
			os.Exit(n)
		default:
			return fmt.Errorf("hold: unknown argument %q", arg)
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	note := func(file string) error {
		if err := os.WriteFile(file+".new", []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
		return os.Rename(file+".new", file)
	}
	if err := note(name); err != nil {
		return err
	}
	for range signals {
		if err := syscall.Madvise(anon, syscall.MADV_DONTNEED); err != nil {
			return err
		}
		if err := note(name + ".freed"); err != nil {
			return err
		}
	}
	return nil
}

// mapped maps memory and touches every page of it.
func mapped(fd, size, prot, flags int) ([]byte, error) {
	b, err := syscall.Mmap(fd, 0, size, prot, flags)
	if err != nil {
		return nil, err
	}
	sum := byte(0)
	for i := 0; i < size; i += os.Getpagesize() {
		if prot&syscall.PROT_WRITE != 0 {
			b[i] = 1
		}
		sum += b[i]
	}
	runtime.KeepAlive(sum)
	return b, nil
}

// held returns the PIDs that the holders of these names noted, once all have.
func held(t *testing.T, run *slurmtest.JobRun, names ...string) map[string]int {
	t.Helper()
	pids := make(map[string]int)
	run.Until(t, holdTimeout, func(r slurmtest.Result) bool {
		if r.Over() {
			t.Fatalf("job ended: %s %s, stderr %s\n%s", r.State, r.Reason, r.Stderr, run.Log())
		}
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join(run.Dir, name))
			if err != nil {
				return false
			}
			pids[name], _ = strconv.Atoi(string(b))
		}
		return true
	})
	return pids
}
