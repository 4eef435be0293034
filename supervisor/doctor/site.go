package doctor

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

// pluginFacts are what there is of the SPANK plugin that starts every task under rsswarden.
type pluginFacts struct {
	Conf    string   // plugstack.conf
	Words   []string // its line
	Library []byte   // the plugin, nil where it cannot be read
	Err     error    // why
	Program error    // why what it starts cannot be executed
	Version string   // of Slurm, empty where it is not known
}

const pluginName = "rsswarden_spank.so"

// pluginLine is the line of a plugstack.conf that loads the plugin.
func pluginLine(conf string) []string {
	for line := range strings.Lines(conf) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) >= 2 && filepath.Base(words[1]) == pluginName {
			return words
		}
	}
	return nil
}

func (f *pluginFacts) program() string {
	for _, word := range f.Words[2:] {
		if path, ok := strings.CutPrefix(word, "bin="); ok {
			return path
		}
	}
	return "/usr/bin/rsswarden"
}

// plugin looks at the plugin, where plugstack.conf names it. version finds that of Slurm.
func (d *prober) plugin(version func() string) []Check {
	f, ok := within(func() *pluginFacts {
		path, conf := slurm.Plugstack(d.Lookup)
		f := &pluginFacts{Conf: path, Words: pluginLine(conf)}
		if f.Words == nil {
			return nil
		}
		f.Library, f.Err = procfile.Read(f.Words[1], procfile.Table) // of some 20 kB
		_, f.Program = d.LookPath(f.program())
		return f
	})
	if !ok || f == nil {
		return nil
	}
	f.Version = version()
	return []Check{pluginCheck(f)}
}

// builtFor is in the plugin, with the number of the Slurm that it was built for behind it.
const builtFor = "rsswarden for Slurm 0x"

func pluginCheck(f *pluginFacts) Check {
	c := Check{Name: NamePlugin, Source: f.Conf}
	const bare = "; tasks run bare"
	switch {
	case f.Words[0] != "optional":
		return c.as(Limited, "write optional instead", "%s: without the plugin no job could start", strings.Join(f.Words[:2], " "))
	case !filepath.IsAbs(f.Words[1]): // PluginDir is a list that Slurm may have built in
		return c.as(Limited, "write its whole path", "%s is in Slurm's PluginDir, if anywhere; whether it fits was not checked", f.Words[1])
	case f.Err != nil:
		return c.as(Off, "build it and copy it there: docs/site.md", "%v%s", f.Err, bare)
	case f.Program != nil:
		return c.as(Off, "install it there, or write bin=PATH behind the plugin", "%s: %v%s", f.program(), errnoOf(f.Program), bare)
	}
	_, number, _ := bytes.Cut(f.Library, []byte(builtFor))
	number, _, _ = bytes.Cut(number, []byte{0})
	n, err := strconv.ParseUint(string(number), 16, 32)
	if err != nil {
		return c.as(Limited, "build it: docs/site.md", "%s does not say for which Slurm it was built", f.Words[1])
	}
	built := slurm.Release{int(n >> 16), int(n >> 8 & 0xff)}
	if f.Version != "" && (!built.In(f.Version) || slurm.Release{built[0], built[1] + 1}.In(f.Version)) {
		return c.as(Off, "build it again: docs/site.md", "%s is for Slurm %v, this is %s%s", f.Words[1], built, f.Version, bare)
	}
	return c.as(OK, "", "%s", fmt.Sprintf("tasks are started under rsswarden by %s, for Slurm %v", strings.Join(f.Words[1:], " "), built))
}

// prologFacts are what there is of a TaskProlog that starts watchers beside tasks.
type prologFacts struct {
	Path    string // the script
	Program string // that it calls, as its line bin=PATH says; empty without one
	Err     error  // why that cannot be executed
	InTask  bool
	Watcher int   // PID of the one beside this task, 0 for none
	Bare    error // why this task gets none; nil where it may have one
}

// taskProlog looks at TaskProlog, where its script calls rsswarden.
func (d *prober) taskProlog() []Check {
	f, ok := within(func() *prologFacts {
		path, text := slurm.TaskProlog(d.Lookup)
		if !strings.Contains(text, "task-prolog") {
			return nil
		}
		f := &prologFacts{Path: path, Bare: d.WhyBare(), InTask: d.get("SLURM_JOB_ID") != ""}
		for line := range strings.Lines(text) {
			if bin, ok := strings.CutPrefix(strings.TrimSpace(line), "bin="); ok {
				f.Program = strings.Trim(bin, `"'`)
				_, f.Err = d.LookPath(f.Program)
			}
		}
		if owner, lives, err := loader.Owner(d.get(loader.EnvDir)); err == nil && lives {
			f.Watcher = owner.PID
		}
		return f
	})
	if !ok || f == nil {
		return nil
	}
	return []Check{prologCheck(f)}
}

func prologCheck(f *prologFacts) Check {
	c := Check{Name: NameTaskProlog, Source: f.Path}
	switch {
	case f.Err != nil:
		return c.as(Off, "install it there, or correct bin= in "+f.Path, "%s: %v; tasks run bare", f.Program, errnoOf(f.Err))
	case !f.InTask:
		return c.as(OK, "", "TaskProlog starts a watcher beside each task")
	case f.Watcher != 0:
		return c.as(OK, "", "a watcher is beside this task, process %d", f.Watcher)
	case f.Bare != nil:
		return c.as(Limited, "rsswarden run -- COMMAND watches it all the same", "this task runs bare: %v", f.Bare)
	}
	return c.as(Limited, "look into the log of slurmd for task_prolog", "this task has no watcher, or its watcher has ended")
}
