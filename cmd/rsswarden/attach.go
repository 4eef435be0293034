package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor"
	attachment "github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/tell"
)

func attachCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      "attach",
		Category:  "Run",
		Usage:     "watch a process or job that already runs",
		UsageText: "rsswarden attach [OPTIONS] PID\nrsswarden attach [OPTIONS] --job ID[.STEP]",
		Args:      true,
		Description: "Warns and acts by the ladder of run, on the process and its descendants, until\n" +
			"it ends. It is not traced or stopped; the end of attach changes nothing for it.\n" +
			"Exit status: 0 when what was watched has ended; INT, TERM and HUP end attach.\n",
		Flags: append(watchFlags(false),
			&cli.StringFlag{Name: "job", Usage: "watch all that the Slurm job or step `ID` has on this node"}),
		ArgsUsage: examples(
			"rsswarden attach 4711",
			"rsswarden attach --job 118 --at '95%:signal=USR1'",
		),
	}, func(c *cli.Context) error {
		t, err := attachTo(p, c)
		if err != nil {
			return err
		}
		return attach(p, t)
	})
}

// target is what is attached to.
type target struct {
	settings settings.Settings
	process  *attachment.Process
	followed *population.Followed // nil for one process
	env      *population.Environment
	able     attachment.Abilities
}

// attachTo checks what the user typed and finds the target.
func attachTo(p process, c *cli.Context) (*target, error) {
	t := &target{}
	var err error
	job := c.String("job")
	switch {
	case c.IsSet("job") && c.NArg() > 0:
		return nil, usagef("rsswarden attach --job ID, or rsswarden attach PID", "both --job and a PID were given")
	case !c.IsSet("job") && c.NArg() == 0:
		return nil, usagef("rsswarden attach 4711, or rsswarden attach --job 46", "neither a PID nor --job was given")
	case c.NArg() > 1:
		return nil, usagef("options go before the PID; attach to each process by an attach of its own", "unexpected argument %q", c.Args().Get(1))
	}
	if proctree.Self("/proc") != os.Getpid() {
		return nil, usagef(mountProc, "%s", otherPIDs)
	}
	if t.settings, err = settingsOf(p, c); err != nil {
		return nil, err
	}
	if c.IsSet("job") {
		return t, t.toJob(p, job)
	}
	return t, t.toProcess(p, c.Args().First())
}

// toJob makes a job the target.
func (t *target) toJob(p process, id string) error {
	m := jobID().FindStringSubmatch(id)
	if m == nil {
		return usagef("give a job or a step as squeue -s shows it: 46, 46.0, 46.batch or 46_3", "--job %q is not a Slurm job", id)
	}
	job := m[1]
	if slurm.IsSLUID(job) || strings.Contains(job, "_") && os.Geteuid() == 0 {
		// Cgroups have the task's own number. A user takes it from the environment of
		// the job's processes, which root does not believe. No process says which job a
		// SLUID is where Slurm names directories by numbers, as on cgroup v1.
		ctx, cancel := context.WithTimeout(context.Background(), slurm.ScontrolTimeout)
		defer cancel()
		r, err := slurm.FindRunning(ctx, slurm.Scontrol, job)
		if err != nil {
			return err
		}
		job = r.ID
	}
	f, err := population.FollowJob("/proc", "/sys", job, m[2], os.Getpid())
	if err != nil {
		return err
	}
	if f == nil {
		host, _ := os.Hostname()
		// Without -N and -n srun takes both from the environment, which may be a batch script's;
		// --mem=0 is all of the job's memory, where a share could be refused.
		beside := fmt.Sprintf("srun --overlap --mem=0 -N1 -n1 -w NODE --jobid=%s rsswarden attach --job %s", m[1], id)
		return usagef(fmt.Sprintf("squeue -j %s -o %%N tells on which nodes it runs; on one of them: %s", m[1], beside),
			"no process of job %s found on this node (%s)", id, host)
	}
	found := f.Job()
	t.followed, t.process = f, attachment.FollowAll(found.Roots[0], f.Lives, f.Wait)
	t.settings.Command = []string{"job", found.Name}
	t.describe(p, found.Roots[0].PID, found.Name)
	return nil
}

// toProcess makes a process the target.
func (t *target) toProcess(p process, text string) error {
	if jobID().MatchString(text) && strings.ContainsAny(text, "._") {
		return usagef("did you mean rsswarden attach --job "+text+"?", "%q is not a PID", text)
	}
	id, err := checkTarget("", text, "rsswarden attach")
	if err != nil {
		return err
	}
	t.process = attachment.Follow("/proc", id)
	t.describe(p, id.PID, "")
	t.settings.Command = commandLine(id.PID)
	return nil
}

// describe finds out what is known of a process, and what cannot be done to it.
func (t *target) describe(p process, pid int, job string) {
	type found struct {
		env    *population.Environment
		noHook string
		cannot []string
	}
	f, ok := within(filePatience, func() found {
		env := population.EnvironmentOf("/proc", "/sys", pid, p.get("SLURM_CONF"))
		hook := noHook(pid)
		return found{env, hook, cannotDo(pid, job, hook, env)}
	})
	if !ok {
		f = found{&population.Environment{}, "its environment could not be read", []string{
			fmt.Sprintf("the environment of process %d could not be read within %v, so its Slurm job is not known", pid, filePatience),
		}}
	}
	t.env, t.able = f.env, attachment.FromOutside(f.noHook, f.cannot)
	if conf, ok := t.env.Lookup("SLURM_CONF"); ok && p.get("SLURM_CONF") == "" {
		t.process.Conf = conf
	}
}

// attach watches until the target has ended, or a signal ends the watch.
func attach(p process, t *target) error {
	p.color = &t.settings.Color
	log, closeLog := newLog(p.stderr, styleOf(p, p.stderr), t.settings.Log)
	tell.NameRun(&t.settings.Run, t.env.Lookup)
	told := make(chan syscall.Signal, 1)
	stop := interrupts() // before a line of ours says that it watches
	go func() {
		// At the end of a job Slurm sends TERM to our own step: where the target has ended, the
		// first signal is ignored. The second ends us.
		if s := (<-stop).(syscall.Signal); !t.process.Ended() {
			told <- s
			t.process.Leave()
		}
		dieBy((<-stop).(syscall.Signal))
	}()
	err := t.watch(log)
	closeLog(500 * time.Millisecond)
	select {
	case s := <-told:
		dieBy(s)
	default:
	}
	return err
}

// watch returns when the watch has ended. An internal error ends the watch alone.
func (t *target) watch(log logger) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the watch broke off, %s runs on: internal error: %v", strings.Join(t.settings.Command, " "), r)
		}
	}()
	o := supervisor.Options{
		Settings: t.settings, Link: t.process, Proc: "/proc", Sys: "/sys", Self: os.Getpid(),
		Lookup: t.env.Lookup, Log: log, Able: t.able,
	}
	if t.followed != nil {
		o.Job = t.followed.Job
	}
	supervisor.Watch(o)
	return nil
}

// cannotDo says what cannot be done to a process that we did not start, and why.
func cannotDo(pid int, job, noHook string, env *population.Environment) []string {
	all, asked := []string{"rsswarden did not start it: its exit status will not be known"}, "every task"
	if job == "" {
		all[0] += ", and its orphaned children are not adopted"
		all, asked = append(all, "what had left its tree by now, orphaned, is not counted with it"), "the process itself"
	}
	why := noHook
	if why == hookless {
		why += "; by hand, once, rsswarden trim does the one by ptrace"
	}
	all = append(all, "workers of PyTorch loaders are neither trimmed nor recycled: "+why)
	all = append(all, "only LOCAL_RANK and RANK in the environment show which processes train: a signal= rule asks those, else "+asked)
	i, err := proctree.Identify("/proc", pid)
	if err != nil {
		return all
	}
	who := fmt.Sprintf("process %d belongs to %s", pid, userName(i.UID))
	switch {
	case errors.Is(env.Err, population.ErrNotBelieved) && os.Geteuid() == 0:
		all = append(all, "root believes no process's environment: the Slurm job is known from cgroups and slurmstepd alone, if at all")
	case env.Err != nil:
		all = append(all, who+", its environment cannot be read: its Slurm job is known from its cgroup alone, if at all")
	}
	if f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid)); errors.Is(err, fs.ErrPermission) {
		all = append(all, who+", its PSS cannot be read: a limit on PSS is known only to lie between 0 and RSS")
	} else if err == nil {
		f.Close()
	}
	if err := unix.Kill(pid, 0); errors.Is(err, syscall.EPERM) {
		all = append(all, who+": signal, stop and worker signals will be refused")
	}
	return all
}

const hookless = "no loader hook of ours is in it"

// noHook says why we can ask no loader of the process.
func noHook(pid int) string {
	var dir string
	if i, err := proctree.Identify("/proc", pid); err == nil && i.UID == os.Geteuid() {
		vars, _ := proctree.Environ("/proc", pid, func(name string) bool { return name == loader.EnvDir })
		dir = vars[loader.EnvDir]
	}
	if line := commandLine(pid); filepath.Base(line[0]) == programName && len(line) > 1 && line[1] == "run" {
		return fmt.Sprintf("process %d is an rsswarden, which does that for what it started; two must not", pid)
	}
	if dir == "" {
		return hookless
	}
	owner, lives, err := loader.Owner(dir)
	switch {
	case err != nil:
		return "it was started under rsswarden, and its run directory is of no use: " + err.Error()
	case lives:
		return fmt.Sprintf("rsswarden (process %d) started it and does that; two must not", owner.PID)
	}
	return fmt.Sprintf("the rsswarden that started it (process %d) has ended, and its run directory with it", owner.PID)
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", uid)
}
