// Command rsswardend tells Prometheus of the memory of all Slurm jobs of a node.
//
//	rsswardend [--listen ADDR] [--textfile DIR] [--records DIR]
//
// It finds jobs and steps in the cgroup tree and reads what they are charged, what of it
// can end in an OOM kill, their limits and the time that is left; no privilege is
// needed, and no file of a user or process's environment is read. Each job that
// loses a process to the OOM killer is reported on stderr and, with --records, in a
// file. It belongs to the node, and refuses to run inside a job.
//
//	rsswardend send
//
// carries one alert of a run to its receiver. rsswarden starts it, and links nothing
// that talks to the network itself.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/nodejobs"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/textfile"
)

const programName = "rsswardend"

// version is set by the linker; `make build` puts the git description here.
var version = "unknown"

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // it could not start, or go on
	exitUsage  = 2 // bad usage, nothing was started
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == sendCommand {
		os.Exit(send(os.Stdin, os.Stdout))
	}
	os.Exit(run(process{args: os.Args, lookup: os.LookupEnv, stdout: os.Stdout, stderr: os.Stderr}))
}

// run is the whole program: it returns the exit status.
func run(p process) int {
	cli.HelpFlag = &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "print this help", DisableDefaultText: true}
	app := &cli.App{
		Name:                  programName,
		Usage:                 appUsage,
		UsageText:             usageText,
		HideHelpCommand:       true,
		HideVersion:           true,
		Writer:                p.stdout,
		ErrWriter:             p.stderr,
		ExitErrHandler:        func(*cli.Context, error) {},
		OnUsageError:          func(_ *cli.Context, err error, _ bool) error { return ourWords(err) },
		Flags:                 flags(),
		CustomAppHelpTemplate: helpTemplate,
		Action: func(c *cli.Context) error {
			switch first := c.Args().First(); {
			case first == "help", c.Args().Get(1) == "help" && slices.Contains([]string{manCommand, "version"}, first):
				return cli.ShowAppHelp(c)
			case first == manCommand && c.NArg() == 1:
				_, err := fmt.Fprint(p.stdout, manual())
				return err
			case c.Bool("version"), first == "version" && c.NArg() == 1:
				_, err := fmt.Fprintf(p.stdout, "%s %s\n%s\ntested with Slurm %s\n", programName, version, text.Build(), slurm.Tested)
				return err
			}
			s, err := parse(p, c)
			if err != nil {
				return err
			}
			return serve(p, s)
		},
	}
	err := app.Run(p.args)
	if err == nil {
		return exitOK
	}
	failed := &failure{status: exitFailed}
	errors.As(err, &failed)
	fmt.Fprintln(p.stderr, "error:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if failed.hint != "" {
		fmt.Fprintln(p.stderr, "hint:", failed.hint)
	}
	return failed.status
}

// ourWords says what the flag package found wrong.
func ourWords(err error) error {
	const hint = programName + " --help lists the options"
	msg := err.Error()
	if name, ok := strings.CutPrefix(msg, "flag provided but not defined: -"); ok {
		name = strings.TrimLeft(name, "-")
		if ours := calledOtherwise[name]; ours != "" {
			return usagef("did you mean --"+ours+"?", "unknown option --%s", name)
		}
		return usagef(hint, "unknown option --%s", name)
	}
	if name, ok := strings.CutPrefix(msg, "flag needs an argument: -"); ok {
		return usagef(hint, "option --%s needs a value", strings.TrimLeft(name, "-"))
	}
	var value, name string
	if n, _ := fmt.Sscanf(msg, "invalid value %q for flag -%s", &value, &name); n == 2 {
		name = strings.TrimSuffix(name, ":")
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			return usagef("give the number a unit: --"+name+" "+value+"s", "--%s %q has no unit", name, value)
		}
		return usagef("give a number with a unit, such as 10s or 2m", "--%s %q is not a duration", name, value)
	}
	return usagef(hint, "%s", msg)
}

// calledOtherwise are the names that other exporters, and people, have for our options.
var calledOtherwise = map[string]string{
	"web.listen-address": "listen", "listen-address": "listen", "address": "listen", "addr": "listen", "port": "listen", "p": "listen",
	"web.config": "web.config.file", "config": "web.config.file", "config.file": "web.config.file",
	"collector.textfile.directory": "textfile", "record": "records", "nodename": "node",
}

// parse checks the options before anything is started.
func parse(p process, c *cli.Context) (settings, error) {
	s := settings{
		listen: c.String("listen"), webConfig: c.String("web.config.file"),
		textfile: c.String("textfile"), records: c.String("records"),
		interval: c.Duration("interval"), node: c.String("node"), adminComment: c.Bool("admin-comment"),
	}
	if c.NArg() > 0 {
		return s, usagef(programName+" --help lists the options", "unexpected argument %q", c.Args().First())
	}
	if s.listen == "none" {
		s.listen = ""
	}
	if s.listen == "" && s.textfile == "" && s.records == "" && !s.adminComment {
		return s, usagef("give --textfile DIR, or leave --listen out", "nothing to do: no --listen, --textfile, --records or --admin-comment")
	}
	if s.listen != "" {
		if _, _, err := net.SplitHostPort(s.listen); err != nil {
			return s, usagef("give an address and a port, as 127.0.0.1:9759, or :9759 for all addresses", "--listen %q is not an address", s.listen)
		}
	}
	if s.interval < time.Second || s.interval > time.Hour {
		return s, usagef("give a time from 1s to 1h", "--interval %v is too short or too long", s.interval)
	}
	for _, dir := range []struct{ option, name string }{{"textfile", s.textfile}, {"records", s.records}} {
		if dir.name == "" {
			continue
		}
		if info, err := os.Stat(dir.name); err != nil || !info.IsDir() {
			return s, usagef("make it first, for the user that "+programName+" runs as", "--%s %q is not a directory", dir.option, dir.name)
		}
		if err := textfile.Check(dir.name); err != nil {
			return s, usagef("let the user that "+programName+" runs as write there", "--%s: no file can be made in %s: %v", dir.option, dir.name, err)
		}
	}
	if s.records != "" {
		if err := (&recordFile{dir: s.records}).check(); err != nil {
			return s, usagef("let the user that "+programName+" runs as write it", "--records: cannot write what is there: %v", err)
		}
	}
	if s.node == "" {
		s.node = slurm.NodeName(func(name string) (string, bool) { v := p.get(name); return v, v != "" })
	}
	if !nodejobs.IsNodeName(s.node) {
		return s, usagef("give the name that Slurm has for it by --node", "%q is not the name of a node", s.node)
	}
	return s, outside(p)
}

// outside refuses to run in a job: what watches all jobs of a node must not end with one
// of them, nor be charged to it.
func outside(p process) error {
	const hint = "start it as a service of the node; in a job, use rsswarden run"
	own, err := procfile.Read("/proc/self/cgroup", procfile.Small)
	if err != nil {
		return fmt.Errorf("cannot tell whether this is a job: %w", err)
	}
	job, _, in := slurm.StepOfCgroup(own)
	if !in {
		job = p.get("SLURM_JOB_ID")
	}
	if job != "" {
		return usagef(hint, "this is job %s", job)
	}
	return nil
}

// process is what the program may know of the process it runs in; nothing below main
// reads os.Args or the environment itself.
type process struct {
	args           []string
	lookup         func(string) (string, bool)
	stdout, stderr *os.File
}

func (p process) get(name string) string {
	v, _ := p.lookup(name)
	return strings.TrimSpace(v)
}

// settings is what the command line chooses.
type settings struct {
	listen, webConfig string // listen is empty for no HTTP
	textfile, records string // directories, empty for none
	interval          time.Duration
	node              string
	adminComment      bool
}

// failure is what kept it from starting, with what to do about it.
type failure struct {
	error
	hint   string
	status int
}

func (f *failure) Unwrap() error { return f.error }

// usagef is bad input, found before anything was started.
func usagef(hint, format string, args ...any) error {
	return &failure{fmt.Errorf(format, args...), hint, exitUsage}
}
