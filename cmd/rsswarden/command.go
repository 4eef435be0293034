package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// command adds what all commands share: --help, whatever else is on the line, and bad
// usage in our own words. Args says that the command takes arguments.
func command(p process, c cli.Command, action func(*cli.Context) error) *cli.Command {
	c.HideHelp, c.HideHelpCommand, c.OnUsageError = true, true, onUsageError
	c.Flags = append(c.Flags, helpFlag())
	c.Action = func(ctx *cli.Context) error {
		switch {
		case ctx.Bool("help"), asksHelp(p, ctx):
			return p.print(helpOf(ctx.Command))
		case ctx.Bool("help-all"):
			return p.print(helpAllOf(ctx.Command))
		case !c.Args && ctx.NArg() > 0:
			return unexpected(ctx)
		}
		if err := checkColor(ctx); err != nil {
			return err
		}
		return action(ctx)
	}
	return &c
}

// colorFlag is --color of the commands that print once; run and attach have it among the
// options of a watch.
func colorFlag(p process) cli.Flag {
	o := optionNamed(colorOption)
	return &cli.StringFlag{Name: o.name, Value: o.def, Usage: o.usage, Destination: p.color}
}

func checkColor(c *cli.Context) error {
	if !c.IsSet(colorOption) {
		return nil
	}
	return usageOf("--"+colorOption, oneOf(c.String(colorOption), optionNamed(colorOption).values...))
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "for programs"} }

// parseTrailingFlags sets flags after arguments, as in `report 4711 --json`; the cli
// package takes them for arguments.
func parseTrailingFlags(c *cli.Context) ([]string, error) {
	var args []string
	rest := c.Args().Slice()
	for i := 0; i < len(rest); i++ {
		a := rest[i]
		if a == "--" {
			return append(args, rest[i+1:]...), checkColor(c)
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			args = append(args, a)
			continue
		}
		name, value, has := strings.Cut(strings.TrimLeft(a, "-"), "=")
		f := flagNamed(c.Command.Flags, name)
		if f == nil {
			return nil, onUsageError(c, fmt.Errorf("flag provided but not defined: -%s", name), false)
		}
		if _, truth := f.(*cli.BoolFlag); truth && !has {
			value = "true"
		} else if !has {
			if i++; i == len(rest) {
				return nil, onUsageError(c, fmt.Errorf("flag needs an argument: -%s", name), false)
			}
			value = rest[i]
		}
		if err := c.Set(name, value); err != nil {
			return nil, onUsageError(c, fmt.Errorf("invalid boolean value %q for -%s: %w", value, name, err), false)
		}
	}
	return args, checkColor(c)
}

// examples are lines as a user types them; a test reads them as the program does. The
// cli package has no field for them: they are kept in ArgsUsage, which is not printed.
func examples(lines ...string) string { return strings.Join(lines, "\n") }
