package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/remote"
	"github.com/rsswarden/rsswarden/supervisor/screen"
)

func topCommand(p process) *cli.Command {
	flags := []cli.Flag{
		&cli.BoolFlag{Name: "once", Usage: "print one frame and end"},
		&cli.StringFlag{Name: "interval", Usage: "`DURATION`: the pause between two looks, 1s, with --job 3s"},
		&cli.StringFlag{Name: "sort", Usage: "sort by `KEY`: " + strings.Join(screen.Keys()[:5], ", ") + ", …"},
		&cli.StringFlag{Name: "filter", Usage: "show only rows with `TEXT` in them, as the key / does"},
	}
	return command(p, cli.Command{
		Name:      "top",
		Category:  "Look",
		Usage:     "show current runs live",
		UsageText: "rsswarden top [--job ID | --pid PID] [--once] [OPTIONS]",
		Description: "Shows the runs of this Slurm job on this node; outside a job all of yours.\n" +
			"Other nodes are asked by srun --overlap, in a small step of the job's\n" +
			"that lasts as long as the screen. The key ? lists the keys; q leaves, and what\n" +
			"is watched goes on. --once prints all rows where stdout is not a terminal;\n" +
			"COLUMNS is its width then. Exit status of --once: 1 when no run is there.\n",
		Flags: slices.Concat(targetFlags(), []cli.Flag{pidFlag()}, flags, []cli.Flag{colorFlag(p)}),
		ArgsUsage: examples(
			"rsswarden top --job 118 --sort rss",
			"rsswarden top --once --filter worker",
		),
	}, func(c *cli.Context) error {
		t, pid, err := pidTarget(c)
		if err != nil {
			return err
		}
		m, err := topModel(p, c, t)
		if err != nil {
			return err
		}
		f, err := remote.Follow(p.caller(), t, m.Interval, c.Bool("once"))
		if err != nil {
			return err
		}
		defer f.Stop()
		fetch := func(ctx context.Context) ([]control.Status, []error) {
			all, errs := f.Fetch(ctx)
			all = slices.DeleteFunc(all, func(st control.Status) bool { return !hasProcess(&st, pid) })
			if pid > 0 && len(all)+len(errs) == 0 {
				errs = []error{noProcess(pid)}
			}
			return all, errs
		}
		o := screen.Options{In: os.Stdin, Out: p.stdout, Model: m, Fetch: fetch, Do: func(ctx context.Context, o screen.Order, each func(control.Result)) error {
			return f.Do(ctx, o.Node, o.Leader, o.Rank, o.Command, each)
		}}
		if c.Bool("once") {
			return topOnce(p, o, f)
		}
		return topLive(p, o, f.Stop)
	})
}

// leastAcross is how often other nodes may be asked: all output goes through Slurm.
const leastAcross = 2 * time.Second

// topModel reads the options.
func topModel(p process, c *cli.Context, t remote.Target) (screen.Model, error) {
	m := screen.New(80, 24, styleOf(p, p.stdout))
	m.Job, m.Interval = t.Job, time.Second
	least := 200 * time.Millisecond
	if t.Job != "" {
		m.Interval, least = 3*time.Second, leastAcross
	}
	if c.IsSet("interval") {
		if err := setDuration(&m.Interval, c.String("interval"), least, time.Hour); err != nil {
			return m, usageOf("--interval", err)
		}
	}
	if key := c.String("sort"); c.IsSet("sort") {
		if err := oneOf(key, screen.Keys()...); err != nil {
			return m, usageOf("--sort", err)
		}
		m = m.SortBy(key)
	}
	return m.Filter(c.String("filter")), nil
}

// topOnce prints one frame: what fits a terminal, or all rows.
func topOnce(p process, o screen.Options, f *remote.Follower) error {
	o.Model.W, o.Model.H = o.Model.Look.Columns(), 0
	if term.IsTerminal(int(p.stdout.Fd())) {
		o.Model.H = max(1, screen.SizeOf(p.stdout).H-1) // the prompt needs a line
	}
	frame, errs := screen.Once(context.Background(), o)
	if frame == nil && len(errs) == 0 {
		return f.NoRun()
	}
	if frame == nil {
		var asked *remote.Error
		if !errors.As(errs[0], &asked) {
			return &remote.Error{Msg: errs[0].Error()}
		}
		return asked
	}
	if _, err := p.stdout.WriteString(frame.Styled()); err != nil {
		return recordFailure(errnoOf(err), "write it to a file with more room")
	}
	return nil
}

// topLive shows the screen until it is left; stop ends what asks the nodes.
func topLive(p process, o screen.Options, stop func()) error {
	if !term.IsTerminal(int(p.stdout.Fd())) {
		return usagef("rsswarden top --once prints one frame", "stdout is not a terminal")
	}
	if kind := p.get("TERM"); kind == "dumb" || kind == "" {
		return screen.Scroll(context.Background(), o)
	}
	if !term.IsTerminal(int(o.In.Fd())) {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return usagef("rsswarden top --once prints one frame", "stdin is not a terminal, and there is none to read keys from")
		}
		defer tty.Close()
		o.In = tty
	}
	err := screen.Run(context.Background(), o)
	stop()
	var sig *screen.SignalError
	if errors.As(err, &sig) {
		screen.Raise(sig.Signal)
	}
	return err
}
