package doctor

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestPlugin(t *testing.T) {
	const conf = "# optional /x/rsswarden_spank.so\ninclude other\noptional /usr/lib64/slurm/pyxis.so\n\toptional /usr/lib64/slurm/rsswarden_spank.so bin=/opt/rsswarden minmem=0 # ours\n"
	library := []byte("\x7fELF\x00rsswarden for Slurm 0x160508\x00more")
	for name, test := range map[string]struct {
		change func(*pluginFacts)
		want
	}{
		"fits":             {func(*pluginFacts) {}, want{OK, "bin=/opt/rsswarden minmem=0, for Slurm 22.05", "", ""}},
		"unknown release":  {func(f *pluginFacts) { f.Version = "" }, want{OK, "for Slurm 22.05", "", ""}},
		"newer Slurm":      {func(f *pluginFacts) { f.Version = "23.02.1" }, want{Off, "is for Slurm 22.05, this is 23.02.1; tasks run bare", "build it again", ""}},
		"older Slurm":      {func(f *pluginFacts) { f.Version = "21.08.8" }, want{Off, "this is 21.08.8", "build it again", ""}},
		"missing":          {func(f *pluginFacts) { f.Err = syscall.ENOENT }, want{Off, "no such file", "build it", ""}},
		"name alone":       {func(f *pluginFacts) { f.Words[1], f.Err = pluginName, syscall.ENOENT }, want{Limited, "PluginDir, if anywhere", "whole path", ""}},
		"no program":       {func(f *pluginFacts) { f.Program = syscall.ENOENT }, want{Off, "/opt/rsswarden: no such file", "bin=PATH", ""}},
		"something else":   {func(f *pluginFacts) { f.Library = []byte("\x7fELF") }, want{Limited, "does not say", "build it", ""}},
		"would end jobs":   {func(f *pluginFacts) { f.Words[0] = "required" }, want{Limited, "no job could start", "optional", ""}},
		"usual program":    {func(f *pluginFacts) { f.Words, f.Program = f.Words[:2], syscall.EACCES }, want{Off, "/usr/bin/rsswarden: permission denied", "bin=PATH", ""}},
		"number cut short": {func(f *pluginFacts) { f.Library = library[:len(library)-12] }, want{Limited, "does not say", "build it", ""}},
	} {
		f := &pluginFacts{Conf: "/etc/slurm/plugstack.conf", Words: pluginLine(conf), Library: library, Version: "22.05.9"}
		if len(f.Words) != 4 || !strings.HasPrefix(f.Words[1], "/usr/lib64/slurm/rsswarden") {
			t.Fatalf("%q", f.Words)
		}
		test.change(f)
		t.Run(name, func(t *testing.T) { test.check(t, pluginCheck(f)) })
	}
}

func TestTaskPrologCheck(t *testing.T) {
	for _, test := range []struct {
		facts prologFacts
		want  want
	}{
		{prologFacts{}, want{OK, "beside each task", "", ""}},
		{prologFacts{Program: "/opt/rsswarden", Err: syscall.ENOENT}, want{Off, "/opt/rsswarden: no such file", "bin=", ""}},
		{prologFacts{InTask: true, Watcher: 7}, want{OK, "process 7", "", ""}},
		{prologFacts{InTask: true, Bare: errors.New("too little")}, want{Limited, "bare: too little", "rsswarden run", ""}},
		{prologFacts{InTask: true}, want{Limited, "no watcher", "slurmd", ""}},
	} {
		test.want.check(t, prologCheck(&test.facts))
	}
}
