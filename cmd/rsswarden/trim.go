package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

func trimCommand(p process, status *int) *cli.Command {
	return &cli.Command{
		Name:            "trim",
		Usage:           "have processes give mapped file pages back, once",
		UsageText:       "rsswarden trim [--pid PID] [--drop] [--dry-run] [--json]\nrsswarden trim [--job ID] [--node NODE] [--rank N]... [--all] [--json]",
		HideHelp:        true,
		HideHelpCommand: true,
		OnUsageError:    onUsageError,
		Description: "Of the process PID, or of all of yours that this Slurm job has on this node.\n" +
			"ptrace stops each for a millisecond or two at a time. What it has mapped\n" +
			"shared and read-only from files leaves its RSS and stays in the page cache.\n" +
			"Exit status: 0, also when there was nothing to trim; 1 when every process was\n" +
			"refused. INT, TERM and HUP end it between two stops; what was done is printed.\n" +
			"With --job, --node, --rank or --all the rsswarden run that leads there is asked\n" +
			"to do it, in the run's own way. Outside a job --pid, --job or --all is needed.\n" +
			"Exit status then: 0 when all did it, else 1.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "pid", Usage: "of the process `PID` and no other"},
			&cli.BoolFlag{Name: "drop", Usage: "drop the files from the page cache too; they are read again"},
			&cli.BoolFlag{Name: "dry-run", Usage: "say what could be given back, touch nothing"},
			&cli.StringSliceFlag{Name: "rank", Usage: "of rank `N` alone (SLURM_PROCID); may be given several times"},
		}, whomFlags(), []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "for programs"},
			helpFlag(),
		}),
		Action: func(c *cli.Context) error {
			if c.Bool("help") {
				return showHelp(p, c)
			}
			if c.NArg() > 0 {
				return unexpected(c)
			}
			if w, q, yes, err := trimByLeader(p, c); err != nil {
				return err
			} else if yes && w.asNode {
				*status = q.serve(p, 0)
				return nil
			} else if yes {
				*status, err = w.do(p, q, c.Bool("json"))
				return err
			}
			all, err := toTrim(p, c)
			if err != nil {
				return err
			}
			*status, err = trimAll(p, all, trimOptions{drop: c.Bool("drop"), dry: c.Bool("dry-run"), json: c.Bool("json")})
			return err
		},
	}
}

type trimOptions struct{ drop, dry, json bool }

// toTrim finds the processes that are meant.
func toTrim(p process, c *cli.Context) ([]*trimmed, error) {
	const like = "rsswarden trim --pid"
	if c.IsSet("pid") {
		pid, err := strconv.Atoi(c.String("pid"))
		if err != nil || pid <= 0 {
			return nil, usagef("give the number that ps shows: "+like+" 4711", "--pid %q is not a PID", c.String("pid"))
		}
		id, err := checkTarget("/proc", pid, like)
		if err != nil {
			return nil, err
		}
		return []*trimmed{{id: id}}, nil
	}
	job, ok := slurm.FromEnv(p.lookup)
	if !ok {
		return nil, usagef(like+" 4711", "this is no Slurm job, and no --pid was given")
	}
	ids, err := supervisor.JobProcesses("/proc", "/sys", job.ID, os.Getpid())
	if err != nil {
		return nil, err
	}
	var all []*trimmed
	for _, id := range ids {
		if ours(id.PID) && !isRsswarden(id.PID) {
			all = append(all, &trimmed{id: id})
		}
	}
	if len(all) == 0 {
		host, _ := os.Hostname()
		return nil, usagef(fmt.Sprintf("squeue -j %s -o %%N tells on which nodes it runs; name a process: %s 4711", job.ID, like),
			"job %s has no process of yours on this node (%s)", job.ID, host)
	}
	return all, nil
}

// isRsswarden says that a process is a holder, a watcher or the like: it runs
// our program, or one of that name.
func isRsswarden(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	self, err := os.Readlink("/proc/self/exe")
	return err == nil && exe == self || strings.TrimSuffix(filepath.Base(exe), " (deleted)") == programName
}

// trimAll does all of it and prints what came of it.
func trimAll(p process, all []*trimmed, o trimOptions) (status int, err error) {
	t := &trimmer{pause: newInterlude(), drops: o.drop}
	for _, s := range all {
		t.plan(s)
	}
	if len(all) > 1 {
		// Of what has ended since the job was listed nobody asked for news.
		all = slices.DeleteFunc(all, func(s *trimmed) bool { return s.refused == trim.Vanished })
	}
	slices.SortStableFunc(all, func(a, b *trimmed) int { return cmp.Compare(b.mapped, a.mapped) })
	if !o.dry {
		t.trim(all)
	}
	r := trimReport{processes: all, dropped: t.dropped, trimOptions: o, cut: t.pause.told() != 0}
	if err := r.print(p.stdout); err != nil {
		return exitCannotRun, fmt.Errorf("cannot print what was trimmed: %w", plain(err))
	}
	if s := t.pause.told(); s != 0 {
		dieBy(s)
	}
	refused := func(s *trimmed) bool { return s.refused != trim.None && s.pieces == 0 }
	if len(all) > 0 && !slices.ContainsFunc(all, func(s *trimmed) bool { return !refused(s) }) {
		fmt.Fprint(p.stderr, line("", "error", "nothing was trimmed, every process was refused", r.hint()))
		return exitRefused, nil
	}
	return exitOK, nil
}
