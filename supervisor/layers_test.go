package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rsswarden/rsswarden"

// layers says what each package of the module may import beside the standard
// library: names below the module, and modules of others. A folder that is
// not listed may import nothing at all.
var layers = map[string][]string{
	"cmd/rsswarden":             {"*"},
	"cmd/rsswarden/hunt":        {},
	"cmd/rsswarden/e2e/e2etest": {"rss/rsstest", "supervisor/control", "supervisor/doctor", "supervisor/wardentest"},

	// It alone may serve and know the network; it is no part of a job.
	"cmd/rsswardend": {
		"rss", "rss/cgroup", "rss/procfile", "rss/proctree", "slurm", "slurm/adminline", "supervisor/alert", "supervisor/event", "supervisor/metrics", "supervisor/nodejobs", "supervisor/roff", "supervisor/text", "supervisor/textfile",
		"github.com/prometheus/client_golang", "github.com/prometheus/common", "github.com/prometheus/exporter-toolkit", "github.com/urfave/cli", "golang.org/x/sys",
	},

	"rss":                {},
	"rss/procfile":       {"golang.org/x/sys"},
	"rss/proctree":       {"rss", "rss/procfile", "golang.org/x/sys", "github.com/prometheus/procfs"},
	"rss/cgroup":         {"rss", "rss/procfile", "golang.org/x/sys"},
	"rss/shm":            {"rss", "rss/procfile", "golang.org/x/sys"},
	"rss/rsstest":        {"rss", "golang.org/x/tools/txtar"},
	"rss/rsstest/debian": {},
	"rss/rsstest/guest":  {},
	"rss/rsstest/golden": {"github.com/google/go-cmp"},

	// It knows no program: each hands it what it knows of itself.
	"rss/rsstest/reference": {"rss/rsstest", "rss/rsstest/golden"},

	"slurm":           {},
	"slurm/adminline": {},
	"slurm/slurmtest": {"slurm", "golang.org/x/sys", "rss/rsstest/debian"},

	"supervisor": {
		"rss", "rss/procfile", "rss/proctree", "rss/cgroup", "rss/shm", "slurm", "golang.org/x/sys",
		"supervisor/settings", "supervisor/view", "supervisor/population", "supervisor/attach",
		"supervisor/event", "supervisor/limit", "supervisor/policy", "supervisor/action",
		"supervisor/loader", "supervisor/hold", "supervisor/trim", "supervisor/record", "supervisor/record/store", "supervisor/diagnosis",
		"supervisor/cadence", "supervisor/counts", "supervisor/node", "supervisor/observe", "supervisor/control", "supervisor/metrics", "supervisor/textfile", "supervisor/alert", "supervisor/fault", "supervisor/probe", "supervisor/text", "supervisor/phrase", "supervisor/tell", "supervisor/wake", "supervisor/workers",
	},

	"supervisor/settings":   {"rss", "supervisor/event", "supervisor/alert"},
	"supervisor/view":       {"rss", "supervisor/event"},
	"supervisor/population": {"rss", "rss/procfile", "rss/proctree", "rss/cgroup", "slurm", "supervisor/fault", "supervisor/probe", "supervisor/view"},
	"supervisor/attach":     {"rss", "rss/proctree", "supervisor/hold", "supervisor/probe"}, // it answers in the holder's words

	"supervisor/alert":             {"supervisor/fault", "supervisor/wake", "rss", "rss/procfile", "supervisor/event", "supervisor/memfile", "golang.org/x/sys"},
	"supervisor/config":            {"supervisor/nodedir", "supervisor/text", "github.com/pelletier/go-toml"},
	"supervisor/control":           {"supervisor/text", "supervisor/fault", "rss", "supervisor/event", "supervisor/socket", "golang.org/x/sys"},
	"supervisor/event":             {"supervisor/nodedir", "supervisor/text", "supervisor/fault", "rss", "slurm"},
	"supervisor/fault":             {"golang.org/x/sys"},
	"supervisor/hold":              {"supervisor/fault", "golang.org/x/sys"},
	"supervisor/metrics":           {"rss", "supervisor/event"},
	"supervisor/metrics/promtest":  {"supervisor/wardentest"},
	"supervisor/limit":             {"supervisor/text", "rss", "rss/procfile", "rss/proctree", "rss/cgroup", "rss/shm", "slurm", "supervisor/event", "golang.org/x/sys"},
	"supervisor/record":            {"supervisor/text", "supervisor/wake", "supervisor/fault", "rss", "supervisor/event", "supervisor/nodedir", "golang.org/x/sys"},
	"supervisor/record/store":      {"supervisor/fault", "supervisor/wake", "rss", "rss/procfile", "supervisor/event", "supervisor/nodedir", "supervisor/record", "supervisor/socket", "github.com/bmatsuo/lmdb-go", "golang.org/x/sys"},
	"supervisor/record/recordtest": {"rss", "supervisor/event", "supervisor/record", "supervisor/record/store"},
	"supervisor/analysis":          {"supervisor/text", "rss", "slurm", "slurm/adminline", "supervisor/event", "supervisor/policy", "supervisor/record"},
	"supervisor/chart":             {"supervisor/text", "rss", "supervisor/event", "supervisor/phrase", "supervisor/analysis"},
	"supervisor/render":            {"supervisor/text", "rss", "supervisor/event", "supervisor/phrase", "supervisor/policy", "supervisor/record", "supervisor/analysis", "supervisor/chart"},
	"supervisor/scenetest":         {"rss", "supervisor/event", "supervisor/policy", "supervisor/record", "supervisor/record/recordtest"},
	"supervisor/replay":            {"supervisor/text", "rss", "supervisor/event", "supervisor/policy", "supervisor/record", "supervisor/workers"},
	"supervisor/policy":            {"supervisor/text", "rss", "supervisor/event"},
	// It acts on parts, as it is decided: it wires them as the packages of the engine do.
	"supervisor/action": {
		"rss", "rss/cgroup", "rss/procfile", "rss/proctree", "slurm", "golang.org/x/sys", "supervisor/event", "supervisor/view", "supervisor/settings", "supervisor/text", "supervisor/phrase",
		"supervisor/attach", "supervisor/control", "supervisor/counts", "supervisor/fault", "supervisor/hold", "supervisor/memfile", "supervisor/observe", "supervisor/policy", "supervisor/population", "supervisor/probe", "supervisor/record", "supervisor/tell", "supervisor/trim", "supervisor/workers",
	},
	"supervisor/loader":           {"rss", "rss/procfile", "rss/proctree", "supervisor/event", "supervisor/fault", "supervisor/nodedir", "supervisor/probe", "supervisor/loader/hook", "golang.org/x/sys"},
	"supervisor/loader/torchtest": {"rss/rsstest/debian", "supervisor/wardentest"},
	"supervisor/node":             {"rss", "rss/procfile", "rss/proctree", "slurm", "supervisor/event", "supervisor/fault", "supervisor/nodedir", "supervisor/probe", "supervisor/text", "supervisor/view", "supervisor/wake", "golang.org/x/sys"},
	"supervisor/nodejobs":         {"rss", "rss/procfile", "rss/cgroup", "slurm", "golang.org/x/sys"},
	"supervisor/cadence":          {"rss", "supervisor/event", "supervisor/view"},
	"supervisor/observe":          {"supervisor/policy", "rss", "rss/cgroup", "rss/proctree", "rss/shm", "slurm", "supervisor/cadence", "supervisor/counts", "supervisor/diagnosis", "supervisor/event", "supervisor/fault", "supervisor/hold", "supervisor/limit", "supervisor/loader", "supervisor/phrase", "supervisor/population", "supervisor/probe", "supervisor/settings", "supervisor/text", "supervisor/view", "supervisor/wake", "supervisor/workers", "golang.org/x/sys"},
	"supervisor/counts":           {"rss", "rss/cgroup", "rss/proctree", "rss/shm", "supervisor/event", "supervisor/fault", "supervisor/probe", "supervisor/text"},
	"supervisor/memfile":          {"golang.org/x/sys"},
	"supervisor/nodedir":          {"rss", "rss/procfile", "golang.org/x/sys"},
	"supervisor/socket":           {"golang.org/x/sys"},
	"supervisor/workers":          {"rss", "supervisor/view", "rss/procfile", "rss/proctree", "supervisor/event", "supervisor/fault", "supervisor/phrase", "supervisor/probe", "supervisor/text"},
	"supervisor/wake":             {"supervisor/fault", "golang.org/x/sys"},
	"supervisor/loader/hook":      {},
	"supervisor/wardentest":       {"rss/rsstest", "supervisor/event", "github.com/creack/pty"},
	"supervisor/diagnosis":        {"supervisor/text", "rss", "supervisor/event"},
	// It tries every part as a run would have it.
	"supervisor/doctor":       {"rss", "rss/cgroup", "rss/procfile", "rss/proctree", "slurm", "supervisor/alert", "supervisor/event", "supervisor/hold", "supervisor/limit", "supervisor/loader", "supervisor/nodedir", "supervisor/phrase", "supervisor/record", "supervisor/settings", "supervisor/text", "supervisor/trim", "golang.org/x/sys"},
	"supervisor/trim/once":    {"rss", "rss/proctree", "supervisor/trim", "golang.org/x/sys"},
	"supervisor/trim":         {"rss", "rss/procfile", "rss/proctree", "supervisor/event", "golang.org/x/sys"},
	"supervisor/saveratetest": {"rss"},
	"supervisor/textfile":     {"supervisor/fault", "supervisor/wake", "supervisor/nodedir", "rss/procfile", "rss/proctree", "golang.org/x/sys"},
	"supervisor/roff":         {},
	// It asks leaders by what they serve, and other nodes over Slurm.
	"supervisor/remote":          {"rss/procfile", "rss/proctree", "slurm", "supervisor/control", "supervisor/event", "supervisor/node", "supervisor/loader", "supervisor/nodedir", "supervisor/text"},
	"supervisor/probe":           {},
	"supervisor/probe/probetest": {"supervisor/probe"},
	"supervisor/text":            {},
	"supervisor/phrase":          {"rss", "slurm", "supervisor/event", "supervisor/text"},
	"supervisor/tell":            {"supervisor/analysis", "supervisor/render", "supervisor/settings", "supervisor/loader", "rss", "rss/procfile", "rss/proctree", "slurm", "supervisor/alert", "supervisor/control", "supervisor/counts", "supervisor/event", "supervisor/fault", "supervisor/limit", "supervisor/metrics", "supervisor/phrase", "supervisor/policy", "supervisor/probe", "supervisor/record", "supervisor/record/store", "supervisor/text", "supervisor/textfile", "supervisor/view", "golang.org/x/sys"},
	// It shows what control says, and so it knows it.
	"supervisor/screen": {"supervisor/text", "supervisor/phrase", "rss", "supervisor/event", "supervisor/control", "golang.org/x/term", "golang.org/x/sys"},

	"examples":               {},
	"examples/demo":          {},
	"examples/demo/pictures": {},
	"examples/standin":       {"rss", "rss/proctree", "golang.org/x/sys"},
	"examples/packages/pack": {"github.com/google/rpmpack"},
	"examples/lmdbload":      {"github.com/bmatsuo/lmdb-go", "golang.org/x/sys"},
}

// TestLayers holds the import directions: which package may import which is the
// structure of the program.
func TestLayers(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		allowed, ok := layers[name]
		if !ok {
			if len(p.GoFiles)+len(p.CgoFiles) > 0 {
				t.Errorf("%s: not in the list of layers", name)
			}
			continue
		}
		if p.Doc == "" && len(p.GoFiles)+len(p.CgoFiles) > 0 {
			t.Errorf("%s: no package comment", name)
		}
		for _, imp := range p.Imports {
			first, _, _ := strings.Cut(imp, "/")
			own, isOwn := strings.CutPrefix(imp, module+"/")
			switch {
			case imp == "C", !isOwn && !strings.Contains(first, "."):
			case slices.Contains(allowed, "*"), isOwn && slices.Contains(allowed, own):
			case !isOwn && slices.ContainsFunc(allowed, func(m string) bool {
				return imp == m || strings.HasPrefix(imp, m+"/")
			}):
			default:
				t.Errorf("%s may not import %s", name, imp)
			}
		}
	}
}

// TestLinked: what the user's program links runs its init before main and is
// mapped in two processes of each job, so what is heavy stays out.
func TestLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"/cmd/rsswarden").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	linked := strings.Fields(string(out))
	if !slices.Contains(linked, "go.uber.org/zap/zapcore") {
		t.Fatalf("not a list of packages: %q", linked)
	}
	for _, heavy := range []string{"net/http", "crypto/tls", "go.uber.org/zap", "github.com/prometheus/client_golang/prometheus"} {
		if slices.Contains(linked, heavy) {
			t.Errorf("cmd/rsswarden links %s", heavy)
		}
	}
}

type pkg struct {
	ImportPath, Doc            string
	GoFiles, CgoFiles, Imports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,GoFiles,CgoFiles,Imports", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
