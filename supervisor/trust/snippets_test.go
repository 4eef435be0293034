package trust

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// snippets are what README, CONTRIBUTING and docs show to be typed or read, without the
// command lines of rsswarden: those are all typed by cmd/rsswarden.TestDocumentsCommands,
// which has a list of its own. A block is known by its first line.
var snippets = []struct {
	shown string
	tests []string // that run it, or hold what is shown to what is so
	why   string   // why none does
}{
	{"#!/bin/bash", []string{"cmd/rsswarden.TestReadmeJob"}, ""},
	{"rsswarden: 08:29:13 watching python train.py (process 32337): 2.93 GiB may be used, 1 % are (slurmstepd kills on summed RSS; limit from --mem, read from RLIMIT_RSS)",
		[]string{"cmd/rsswarden.TestSlurmLinux"}, ""},
	{"rsswarden: 05:07:31 a DataLoader in process 14858 sends 80,000 tensors", []string{"supervisor.TestReadmeLines"}, ""},
	{`{"v":1,"status":"firing","id":"e539f3af6a49d2df","alert":"RsswardenMemoryNearLimit",`, []string{"supervisor/alert.TestMessageShown"}, ""},
	{"RSSWARDEN_ALERT='https://me:PASSWORD@alertmanager.example", []string{"cmd/rsswarden.TestDocumentsAlerts"}, ""},
	{"curl --unix-socket /tmp/rsswarden-1000/lead.46@n1.0a1b2c3d/control http://rsswarden/v1/status", []string{"supervisor/control.TestCurl"}, ""},
	{"curl -s http://127.0.0.1:9759/metrics", []string{"cmd/rsswardend.TestCurl"}, ""},
	{"GET /v1/events", []string{"supervisor/control.TestCurl"}, ""},
	{"POST /v1/recycle", []string{"supervisor/control.TestCurl"}, ""},
	{"rsswardend [--listen ADDR] [--textfile DIR] [--records DIR]", []string{"cmd/rsswardend.TestReference", "cmd/rsswardend.TestCollector"}, ""},
	{"ps -C rsswarden,rss-watcher", []string{"cmd/rsswarden.TestReadmeProcesses"}, ""},
	{`rm -f DIR/rsswarden_"$SLURM_JOB_ID"_*`, []string{"cmd/rsswarden.TestSlurmCommentAndTextfile"}, ""},
	{"scontrol requeuehold", []string{"examples.TestRequeueWithMore"}, ""},
	{"scontrol requeue", []string{"examples/integrations.TestSubmitit", "examples.TestCheckpointRequeue"}, ""},
	{"scontrol show job", []string{"cmd/rsswarden.TestSlurmCommentAndTextfile"}, ""},
	{"sacct -o Comment", nil, "a site must store comments (AccountingStoreFlags), and the tests have no slurmdbd"},
	{"squeue -j 46 -o %N", nil, "an option of Slurm's, as squeue(1) has it"},
	{"squeue -j", nil, "an option of Slurm's, as squeue(1) has it"},
	{"sacct -j", nil, "an option of Slurm's, as sacct(1) has it"},
	{"scontrol --version", []string{"slurm.TestFindVersion"}, ""},
	{"python -I", []string{"cmd/rsswarden.TestSlurmPtrace"}, ""},
	{"python train.py", []string{"cmd/rsswarden.TestReadmeJob"}, ""},
	{"dpkg -i", []string{"examples/packages.TestDebianPackage"}, ""},
	{"dpkg -P", []string{"examples/packages.TestDebianPackage"}, ""},
	{"rsswarden: 21:45:54 the loader hook does not reach process 1896 (python3)", []string{"supervisor.TestReadmeLines", "examples/integrations.TestApptainer"}, ""},
	{"rsswarden: 00:54:24 why: copies of data", []string{"cmd/rsswarden.TestCopiesByDefault"}, ""},
	{"if asked:", []string{"examples/integrations.TestSnippets", "examples/integrations.TestAccelerate"}, ""},
	{"executor = submitit.AutoExecutor(", []string{"examples/integrations.TestSnippets", "examples/integrations.TestSubmitit"}, ""},
	{"trainer = pl.Trainer(", []string{"examples/integrations.TestSnippets", "examples/integrations.TestLightning"}, ""},
	{"rule train:", []string{"examples/integrations.TestSnippets", "examples/integrations.TestSnakemake"}, ""},
	{"process train {", []string{"examples/integrations.TestSnippets", "examples/integrations.TestNextflow"}, ""},
	{`eval "$(conda shell.bash hook)"`, []string{"examples/integrations.TestSnippets", "examples/integrations.TestConda"}, ""},
	{"go test -tags endurance -v -run FirstMinutes ./examples/packages", []string{"examples/packages.TestEnduranceFirstMinutes"}, ""},
	{"make demo", []string{"examples/demo.TestDemo"}, ""},
	{"make install PREFIX=$HOME/.local", []string{"cmd/rsswarden.TestInstall"}, ""},
	{"make release", []string{"examples/packages.TestReleaseIsTheSameAnywhere"}, ""},
	{"make reference", []string{"cmd/rsswarden.TestReference", "cmd/rsswardend.TestReference", "supervisor/event.TestReference", "supervisor/metrics.TestReference"}, ""},
	{"make test", nil, "it runs the tests, this one too"},
	{"make check", nil, "CI runs it in front of the tests"},
	{"make bench", []string{"cmd/bench.TestQuick"}, ""},
	{"make endurance", nil, "it takes hours: what it runs is compiled by make check, and the counts are asked for by hand"},
	{"go run ./cmd/bench -rows b,c", nil, "it watches for a minute: make bench has it among its rows, and cmd/bench.TestQuick runs c"},
	{"go run ./cmd/bench -rows e", nil, "it trains for minutes: make bench has it among its rows"},
	{"go run ./cmd/bench -rows k", nil, "it makes a thousand jobs and takes minutes: make bench has it among its rows"},
	{"go run ./examples/demo/pictures docs/pictures", []string{"examples/demo/pictures.TestPictures"}, ""},
	{"go test -tags endurance -v -run FirstMinutes ./examples/packages", nil, "make endurance runs it with the others"},
	{"go test ./supervisor/policy", nil, "make test runs it with the others"},
	{"go doc ./supervisor", []string{"supervisor.TestLayers"}, ""},
}

var (
	commandLine = regexp.MustCompile(`^(rsswardend|make|go|curl|scontrol|squeue|sacct|dpkg|ps|find|rm|python|GET|POST) \S`)
	ownCommand  = regexp.MustCompile(`^(\$ |exec |srun (-\S+ |NODE )*)*rsswarden `)
)

// TestSnippets: whatever documents show to be typed stands in the list, each with a test
// that is there or with a reason.
func TestSnippets(t *testing.T) {
	docs, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	add := func(name, line string) {
		line, _, _ = strings.Cut(line, "    #")
		line, _, _ = strings.Cut(strings.TrimSpace(line), "     # ")
		i := slices.IndexFunc(snippets, func(s struct {
			shown string
			tests []string
			why   string
		}) bool {
			return strings.HasPrefix(strings.TrimSpace(line), s.shown)
		})
		if i < 0 {
			t.Errorf("%s shows %q, which is in no list", name, line)
			return
		}
		shown = append(shown, snippets[i].shown)
	}
	for _, name := range append([]string{root + "/README.md", root + "/CONTRIBUTING.md"}, docs...) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		blocks, lines, spans := rsstest.Shown(string(b))
		for _, block := range blocks {
			first, _, _ := strings.Cut(block, "\n")
			lines = append(lines, first)
		}
		for _, line := range lines {
			if !ownCommand.MatchString(line) {
				add(name, line)
			}
		}
		for _, span := range spans {
			if commandLine.MatchString(span) {
				add(name, span)
			}
		}
	}
	for _, s := range snippets {
		if !slices.Contains(shown, s.shown) {
			t.Errorf("no document shows %q", s.shown)
		}
		if len(s.tests) == 0 && s.why == "" {
			t.Errorf("%q has neither a test nor a reason", s.shown)
		}
		wantTests(t, s.shown, s.tests)
	}
}
