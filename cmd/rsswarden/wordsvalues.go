package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/screen"
)

// closedValues are those of options that take no others. A test holds them against
// what the options say.
var closedValues = map[string][]string{
	"accounting": {"auto", "rss", "pss", "noshared", "cgroup"},
	"trim":       {"hook", "auto", "ptrace", "off"},
	"loader":     {"auto", "off"},
	"log-format": {"console", "json"},
	"oom-prefer": {"workers", "none"},
}

// offeredSignals are those that trainings catch; any other may be typed.
var offeredSignals = []string{"USR1", "USR2", "TERM", "INT", "HUP"}

// optionWords are the options of a command that may still be given.
func optionWords(c *cli.Command, given []string) []word {
	var list []word
	for _, f := range c.Flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if !ok || internal(f) {
			continue
		}
		name := "--" + f.Names()[0]
		_, many := f.(*cli.StringSliceFlag)
		if !many && slices.ContainsFunc(given, func(g string) bool { g, _, _ = strings.Cut(g, "="); return g == name }) {
			continue
		}
		says := helpRow(f.Names(), doc)[1]
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			says, _, _ = strings.Cut(about[f.Names()[0]], "\n")
		}
		list = append(list, word{name, says})
	}
	return list
}

// valuesOf is what an option may be set to. Which file or directory it is the name of
// its value tells.
func valuesOf(p process, f cli.Flag, typed string) offer {
	name, arg := f.Names()[0], argOf(f)
	var o offer
	for _, v := range closedValues[name] {
		o.words = append(o.words, word{text: v})
	}
	switch {
	case name == "at":
		o.words = ruleWords(typed)
	case name == "record":
		o.words = []word{{"auto", "as rsswarden sees fit"}, {"none", "neither record nor journal"}}
	case name == "job":
		o.words = jobWords(p)
	case name == "pid":
		o.words = processWords("/proc", typed)
	case name == "sort":
		for _, k := range screen.Keys() {
			o.words = append(o.words, word{text: k})
		}
	case arg == "SIG":
		for _, s := range offeredSignals {
			o.words = append(o.words, word{text: s})
		}
	}
	switch arg {
	case "FILE", "PATH":
		o.kind = "files"
	case "DIR":
		o.kind = "dirs"
	}
	return o
}

// argOf is what --help calls the value of a flag.
func argOf(f cli.Flag) string {
	if doc, ok := f.(cli.DocGenerationFlag); ok {
		if _, rest, found := strings.Cut(doc.GetUsage(), "`"); found {
			arg, _, _ := strings.Cut(rest, "`")
			return arg
		}
	}
	return ""
}

// ruleWords are rules as far as they are typed: first a limit and when, then the action.
func ruleWords(typed string) []word {
	var list []word
	when, _, acts := strings.Cut(typed, ":")
	if acts {
		for _, a := range event.Actions {
			form, _, _ := strings.Cut(a.Form(), ",")
			name, arg, takes := strings.Cut(form, "=")
			name = when + ":" + name
			switch {
			case arg == "SIG":
				for _, s := range offeredSignals {
					list = append(list, word{name + "=" + s, a.Says()})
				}
			case takes:
				list = append(list, word{name + "=", a.Says()})
			default:
				if _, err := event.ParseRule(name); err == nil {
					list = append(list, word{name, a.Says()})
				}
			}
		}
		return list
	}
	limit := ""
	list = append(list, word{"none", "clear the ladder that is there by default"})
	if name, _, has := strings.Cut(typed, " "); has {
		limit, list = name+" ", nil
	} else {
		for _, l := range event.Limits {
			text := string(l) + " 90%:"
			if !taken(text) {
				text = string(l) + " eta<10m:"
			}
			list = append(list, word{text, l.Says()})
		}
	}
	return append(list, slices.DeleteFunc([]word{
		{limit + "85%:", "at 85 % of the limit"},
		{limit + "95%:", "at 95 % of the limit"},
		{limit + "free<1G:", "when less than 1 GiB is left"},
		{limit + "eta<5m:", "when it is forecast to be reached in five minutes"},
	}, func(w word) bool { return !taken(w.text) })...)
}

// taken says that the limit can have the condition, as far as a rule is typed.
func taken(when string) bool {
	_, err := event.ParseRule(when + string(event.ActionWarn))
	return err == nil
}

// mostOffered bounds what is listed of runs and processes.
const mostOffered = 100

// arguments is what stands behind the options.
func arguments(p process, command string, given []string, typed string) offer {
	switch command {
	case "report":
		return offer{words: recordWords(p, given, typed), kind: "files"}
	case "replay":
		if len(given) == 0 {
			return offer{words: recordWords(p, given, typed), kind: "files"}
		}
	case "attach":
		if len(given) == 0 {
			return offer{words: processWords("/proc", typed)}
		}
	case "doctor":
		return offer{kind: "files"}
	case "completion":
		if len(given) == 0 {
			var o offer
			for _, s := range shells {
				o.words = append(o.words, word{text: s})
			}
			return o
		}
	}
	return offer{}
}

// recordWords are the runs that are here: those of a job by its number.
func recordWords(p process, given []string, typed string) []word {
	var list []word
	for _, f := range record.Find(recordPlaces(p)...) {
		w := word{f.ID, "run " + f.ID}
		if f.Job != "" {
			w = word{f.Job, "job, " + f.ID}
		}
		same := func(o word) bool { return o.text == w.text }
		if strings.HasPrefix(w.text, typed) && !slices.ContainsFunc(list, same) && !slices.Contains(given, w.text) && len(list) < mostOffered {
			list = append(list, w)
		}
	}
	return list
}

// jobPatience is how long squeue may take: less than the whole may.
const jobPatience = wordsPatience * 7 / 10

// jobWords are this user's running jobs: those that rsswarden leads on this node, and
// those that squeue knows of, where it answers soon.
func jobWords(p process) []word {
	asked := make(chan []word, 1)
	go func() { asked <- queuedJobs() }()
	here := make(chan []word, 1)
	go func() {
		var list []word
		for _, l := range findLeaders("/proc", p.get) {
			if l.job != "" {
				list = append(list, word{l.job, "rsswarden runs here"})
			}
		}
		here <- list
	}()
	var list []word
	deadline := time.After(jobPatience + wordsPatience/10)
	for range 2 {
		select {
		case some := <-here:
			list = append(list, some...)
		case some := <-asked:
			list = append(list, some...)
		case <-deadline:
		}
	}
	slices.SortStableFunc(list, func(a, b word) int { return cmp.Compare(a.text, b.text) })
	return slices.CompactFunc(list, func(a, b word) bool { return a.text == b.text })
}

func queuedJobs() []word {
	ctx, cancel := context.WithTimeout(context.Background(), jobPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "squeue", "--noheader", "--user="+strconv.Itoa(os.Getuid()), "--states=RUNNING", "--format=%A %j")
	cmd.WaitDelay = wordsPatience / 20
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	var list []word
	for l := range strings.Lines(string(out)) {
		id, name, _ := strings.Cut(strings.TrimSpace(l), " ")
		if jobID.MatchString(id) && len(list) < mostOffered {
			list = append(list, word{id, name})
		}
	}
	return list
}

// processWords are this user's processes, the newest first.
func processWords(proc, typed string) []word {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !strings.HasPrefix(e.Name(), typed) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	slices.Reverse(pids)
	var list []word
	for _, pid := range pids {
		// Of a kernel thread, and of what has ended, it is empty.
		line, err := procfile.Read(filepath.Join(proc, strconv.Itoa(pid), "cmdline"), procfile.Cmdline)
		if err != nil || len(line) == 0 {
			continue
		}
		says := strings.ReplaceAll(strings.TrimRight(string(line[:min(len(line), 200)]), "\x00"), "\x00", " ")
		if list = append(list, word{strconv.Itoa(pid), says}); len(list) == mostOffered {
			break
		}
	}
	return list
}
