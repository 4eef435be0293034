package main

import (
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/supervisor/roff"
)

const (
	appUsage   = "tell Prometheus of the memory of all Slurm jobs of this node"
	usageText  = "rsswardend [--listen ADDR] [--textfile DIR] [--records DIR] [OPTIONS]\n   rsswardend man"
	manCommand = "man" // prints the manual page
)

// examples are what --help ends with.
var examples = []string{
	"rsswardend --records /var/lib/rsswardend",
	"rsswardend --listen :9759 --web.config.file /etc/rsswardend-web.yml",
	"rsswardend --listen none --textfile /var/lib/prometheus/node-exporter",
}

// helpTemplate fits 24 lines of 80 columns, with each option's text below it.
var helpTemplate = "Usage:\n   {{.UsageText}}\n\nOptions:\n{{range .VisibleFlags}}   {{.}}\n{{end}}\nE.g.:\n   " + strings.Join(examples, "\n   ") + "\n"

func flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1:9759", Usage: "metrics at `ADDR`, or none"},
		&cli.StringFlag{Name: "web.config.file", Usage: "TLS and passwords for --listen, from a `FILE`"},
		&cli.StringFlag{Name: "textfile", Usage: "metrics for node_exporter in `DIR`/rsswardend.prom"},
		&cli.StringFlag{Name: "records", Usage: "keep in `DIR` what is known of jobs hit by OOM kills"},
		&cli.BoolFlag{Name: "admin-comment", Usage: "write a line for sacct into each job's AdminComment", DisableDefaultText: true},
		&cli.DurationFlag{Name: "interval", Value: 10 * time.Second, Usage: "the `TIME` between two looks, 1s to 1h"},
		&cli.StringFlag{Name: "node", Usage: "the node's `NAME`, where cgroups do not tell it"},
		&cli.BoolFlag{Name: "version", Aliases: []string{"V"}, Usage: "print the version", DisableDefaultText: true},
	}
}

// about has for each option what does not fit into --help.
var about = map[string]string{
	"listen": "Serve metrics, at /metrics, at this address: 127.0.0.1:9759 by default, which this node\n" +
		"alone reaches; :9759 serves other machines too, none turns it off.",
	"web.config.file": "TLS and passwords for --listen, in the form that all exporters of Prometheus have.",
	"textfile": "Write the same metrics to rsswardend.prom in this directory, for node_exporter\n" +
		"(--collector.textfile.directory), at each look.",
	"records": "Keep what is known of each job that lost a process to the OOM killer in this directory,\n" +
		"one JSON object a line.",
	"admin-comment": "Write memory, CPUs and OOM kills of each job that runs longer than a minute or two into its\n" +
		"AdminComment, in the form of jobstats. It needs an operator's rights in Slurm (AdminLevel), or root.",
	"interval": "The time between two looks, 10s by default, 1s to 1h. A forecast takes 20 of them, and\n" +
		"three minutes at least.",
	"node":    "The node's name, where cgroups do not tell it. Else it is SLURMD_NODENAME, else the host's name.",
	"version": "Print the version, what it was built from and by, and the releases of Slurm it is tested with.",
}

// manual is the page rsswardend(8).
func manual() string {
	m := roff.New(roff.Title{Name: programName, Section: 8, Source: programName + " " + version, Manual: "System Administration"})
	m.Section("NAME")
	m.Text(programName + " - " + appUsage)
	m.Section("SYNOPSIS")
	m.Verbatim(strings.ReplaceAll(usageText, "   ", ""))
	tell(m)
	m.Section("EXAMPLES")
	m.Verbatim(strings.Join(examples, "\n"))
	m.Section("SEE ALSO")
	m.Text("rsswarden(1), slurmd(8), systemd.service(5), cgroups(7)")
	return m.String()
}

// page is what reference is written to: a manual page, or one of docs/reference.
type page interface {
	Section(name string)
	Text(text string)
	Term(tag, text string)
}

func tell(m page) {
	m.Section("DESCRIPTION")
	m.Text(`It finds the jobs and steps of this node in the cgroup tree and reads what they are charged, what
of it can end in an OOM kill, their limits and the time that is left. No privilege is needed, and no
file of a user and no process's environment is read. Each job that loses a process to the OOM
killer gets a line on stderr and, with --records, in a file. It is the node's, and refuses to run
inside a job.

Started by rsswarden as "rsswardend send" it carries one alert of a run to its receiver.`)
	m.Section("OPTIONS")
	for _, f := range flags() {
		name, tag := f.Names()[0], "--"+f.Names()[0]
		if _, rest, found := strings.Cut(f.(cli.DocGenerationFlag).GetUsage(), "`"); found {
			arg, _, _ := strings.Cut(rest, "`")
			tag += " " + arg
		}
		m.Term(tag, about[name])
	}
	m.Term("-h, --help", "Print what there is, and examples.")
	m.Section("EXIT STATUS")
	m.Term("0", "A TERM or INT ended it.")
	m.Term("1", "It could not start, or go on.")
	m.Term("2", "Bad usage; nothing was started.")
	m.Section("FILES")
	m.Term("/usr/lib/systemd/system/rsswardend.service", "The unit: no privilege, a state directory of its own.")
	m.Term("/var/lib/rsswardend/", "That directory, with the records.")
}
