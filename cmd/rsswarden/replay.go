package main

import (
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/replay"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

func replayCommand(p process) *cli.Command {
	return command(p, cli.Command{
		Name:      "replay",
		Category:  "After",
		Usage:     "what another limit or rule would have done",
		UsageText: "rsswarden replay [RECORD | DIR | JOBID] [OPTIONS]",
		Args:      true,
		Description: "Runs the ladder again over the record of a run, the newest if none is named:\n" +
			"when each rung fires, whether the job survives, the smallest size that does.\n" +
			"With nothing changed all is as it was read then. With another limit or ladder\n" +
			"what actions free is modelled, and the result says that it is an estimate.\n" +
			recordStatus,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "limit", Usage: "`SIZE`: of the limit that was nearest, as in sbatch --mem"},
			&cli.StringFlag{Name: "accounting", Usage: "`HOW`: the limit that counts so: rss, pss, noshared, cgroup"},
			&cli.StringSliceFlag{Name: "at", Usage: "add `RULE` to the ladder, as run --at does (repeatable)"},
			jsonFlag(),
			colorFlag(p),
		},
		ArgsUsage: examples(
			"rsswarden replay 118 --limit 4G",
			"rsswarden replay 118 --at none --at '90%:trim' --at '97%:stop'",
		),
	}, func(c *cli.Context) error {
		args, err := parseTrailingFlags(c)
		if err != nil {
			return err
		}
		opt, err := replayOptions(c)
		if err != nil {
			return err
		}
		return replayRun(p, args, opt, c.Bool("json"))
	})
}

// replayOptions checks what is to be different.
func replayOptions(c *cli.Context) (opt replay.Options, err error) {
	if text := c.String("limit"); c.IsSet("limit") {
		if opt.Limit, err = rss.ParseBytes(text); err != nil || opt.Limit == 0 {
			return opt, usagef("give a size as in sbatch --mem, such as 3G", "--limit %q is not a size", text)
		}
	}
	if c.IsSet("accounting") {
		if err := oneOf(c.String("accounting"), "rss", "pss", "noshared", "cgroup"); err != nil {
			return opt, usageOf("--accounting", err)
		}
		opt.Accounting = event.Accounting(c.String("accounting"))
	}
	if c.IsSet("at") {
		var s settings.Settings
		if err := setLadder(&s, c.StringSlice("at")); err != nil {
			return opt, usageOf("--at", err)
		}
		opt.Rules = append([]event.Rule{}, s.Rules...)
	}
	return opt, nil
}

// replayRun replays one run and prints the result.
func replayRun(p process, args []string, opt replay.Options, asJSON bool) error {
	runs, err := loadRuns(p, args, true)
	switch {
	case len(runs) == 0:
		return notRead(err)
	case err != nil:
		p.warn(sentences(err.Error()))
	}
	if len(runs) > 1 {
		var names []string
		for _, r := range runs {
			names = append(names, r.Sources[0])
		}
		return usagef("name one of them: rsswarden replay "+names[0],
			"%d runs are meant, and each has limits of its own: %s", len(runs), strings.Join(names, " "))
	}
	result, err := replay.Replay(runs[0], opt)
	switch {
	case err != nil && (opt.Limit > 0 || opt.Accounting != ""):
		return usagef("rsswarden report "+runs[0].Sources[0]+" tells which limits it has", "%v", err)
	case err != nil:
		return recordFailure(err, "a run of less than a second leaves nothing to replay; rsswarden report tells the rest")
	}
	return show(p, asJSON, result, func(w io.Writer, _ text.Style) error { return result.WriteText(w) })
}
