// Standin stands in for slurmstepd where there is no Slurm, in one respect: it
// ends a command as slurmstepd does with JobAcctGatherType=jobacct_gather/linux
// and JobAcctGatherParams=OverMemoryKill.
//
//	standin -limit 400M -- COMMAND [ARG...]
//
// Once a second, as with JobAcctGatherFrequency=task=1, it sums the RSS of the
// command and of all processes below it, found by their parents, and compares
// the sum with the limit. Above it, it sends SIGKILL to all of them at once, with
// no warning before, and exits with 137. Else it exits as the command does, with
// 128+N where signal N ended it.
//
// As slurmstepd does, it sets RLIMIT_RSS of the command to the limit; Linux does
// not enforce that one. It does nothing else that Slurm does.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"golang.org/x/sys/unix"
)

// killed is the exit status after SIGKILL, as a shell reports it.
const killed = 128 + int(unix.SIGKILL)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run returns the exit status: the command's, 137, or as env(1) does 126 and 127
// for a command that cannot be started; 2 for bad usage.
func run(args []string, stdin, stdout, stderr *os.File) int {
	flags := flag.NewFlagSet("standin", flag.ContinueOnError)
	flags.SetOutput(stderr)
	size := flags.String("limit", "", "kill above this summed RSS: a `SIZE` as in sbatch --mem")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	limit, err := rss.ParseBytes(*size)
	if err != nil || limit == 0 || flags.NArg() == 0 {
		fmt.Fprintln(stderr, "error: a limit and a command are needed\nhint: standin -limit 400M -- COMMAND [ARG...]")
		return 2
	}
	fmt.Fprintf(stderr, "standin: no Slurm here: I stand in for slurmstepd's OverMemoryKill "+
		"(JobAcctGatherType=jobacct_gather/linux), limit %d bytes of summed RSS\n", uint64(limit))

	// The command inherits it. Like slurmstepd we lower it, and never raise it.
	var was unix.Rlimit
	err = unix.Getrlimit(unix.RLIMIT_RSS, &was)
	if err == nil && was.Max > uint64(limit) {
		err = unix.Setrlimit(unix.RLIMIT_RSS, &unix.Rlimit{Cur: uint64(limit), Max: uint64(limit)})
	}
	if err != nil {
		fmt.Fprintf(stderr, "standin: cannot set RLIMIT_RSS: %v\n", err)
	}
	cmd := exec.Command(flags.Arg(0), flags.Args()[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(stderr, "standin: cannot start %s: %v\n", flags.Arg(0), err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return 127
		}
		return 126
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for {
		select {
		case <-ended:
			return status(cmd.ProcessState)
		case <-poll.C:
		}
		sum, err := summedRSS(cmd.Process.Pid)
		if err != nil {
			fmt.Fprintf(stderr, "standin: %v\n", err)
			continue
		}
		if sum > limit {
			fmt.Fprintf(stderr, "standin: error: command exceeded memory limit (%d > %d), being killed\n", uint64(sum), uint64(limit))
			if err := killTree(cmd.Process.Pid); err != nil {
				fmt.Fprintf(stderr, "standin: %v\n", err)
			}
			<-ended
			return killed
		}
	}
}

func status(state *os.ProcessState) int {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return state.ExitCode()
}

// tree returns root and all processes below it. Each look is a new reader's: a process whose
// parent has ended belongs to init and is not found, as slurmstepd does not find it either.
func tree(root int) ([]rss.Proc, error) {
	r := proctree.New("/proc")
	defer r.Close()
	procs, _, err := r.Tree(rss.ProcID{PID: root})
	return procs, err
}

// summedRSS adds up the RSS of root and all below it. What processes share is counted once
// for each.
func summedRSS(root int) (sum rss.Bytes, err error) {
	procs, err := tree(root)
	for _, p := range procs {
		sum += p.RSS
	}
	return sum, err
}

// killTree sends SIGKILL to root and all below it. They are stopped first, until
// no new one appears: once a parent is dead its children are not found any more.
func killTree(root int) error {
	stopped := map[int]bool{}
	for before := -1; before < len(stopped); {
		before = len(stopped)
		procs, err := tree(root)
		if err != nil {
			return err
		}
		for _, p := range procs {
			if !stopped[p.ID.PID] {
				stopped[p.ID.PID] = true
				unix.Kill(p.ID.PID, unix.SIGSTOP)
			}
		}
	}
	for pid := range stopped {
		unix.Kill(pid, unix.SIGKILL)
	}
	return nil
}
