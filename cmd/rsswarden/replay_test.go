package main

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestReplayOptions: what is no size, no accounting or no rule is said so before
// a record is read.
func TestReplayOptions(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--limit", "big"}, `--limit "big" is not a size`},
		{[]string{"--limit", "0"}, `--limit "0" is not a size`},
		{[]string{"--accounting", "vsize"}, `--accounting "vsize" is none of`},
		{[]string{"--at", "85%:dance"}, "--at: cannot read rule"},
		{[]string{"--at", "85%:requeue=25%"}, "a percentage of what?"},
	} {
		cmd := replayCommand(process{})
		cmd.Action = func(ctx *cli.Context) error {
			_, err := replayOptions(ctx)
			return err
		}
		app := &cli.App{Commands: []*cli.Command{cmd}, DisableSliceFlagSeparator: true, ExitErrHandler: func(*cli.Context, error) {}}
		err := app.Run(append([]string{"rsswarden", "replay"}, c.args...))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want … %s …", c.args, err, c.says)
		}
	}
}
