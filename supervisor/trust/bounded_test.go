package trust

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// unbounded are the calls that read or list all there is, each with the reason why what
// it reads is short. All else goes through rss/procfile or an io.LimitReader.
var unbounded = map[string]map[string]string{
	"rss/cgroup/events.go":         {"os.ReadDir": "steps of our own job"},
	"rss/cgroup/lag.go":            {"os.ReadDir": "groups of our own making"},
	"rss/cgroup/path.go":           {"os.ReadDir": "groups, which are not searched beyond a number"},
	"rss/proctree/cost.go":         {"os.ReadDir": "our own descriptors"},
	"supervisor/hold/aside.go":     {"io.ReadAll": "from the process that started us"},
	"supervisor/hold/start.go":     {"os.ReadDir": "our own descriptors"},
	"supervisor/hold/threads.go":   {"os.ReadDir": "our own threads"},
	"supervisor/job.go":            {"Readdirnames(-1)": "/proc: no more than there are processes"},
	"supervisor/leader/post.go":    {"os.ReadDir": "a directory that we alone may write"},
	"supervisor/limit/slurm.go":    {"os.ReadDir": "tasks of a step"},
	"supervisor/loader/hookdir.go": {"os.ReadFile": "a directory that root and we alone may write"},
	"supervisor/nodejobs/dir.go":   {"os.ReadDir": "jobs and steps, which Slurm makes"},
	"supervisor/nodejobs/spot.go":  {"os.ReadDir": "jobs and steps, which Slurm makes"},
	"slurm/sluid.go":               {"os.ReadDir": "steps of a job, which root alone makes"},
	"supervisor/limit/jobsum.go":   {"os.ReadDir": "steps of our own job"},
	"supervisor/nodejobs/toll.go":  {"os.ReadDir": "jobs and steps, which Slurm makes"},
	"supervisor/record/place.go":   {"os.ReadDir": "records"},
	"supervisor/record/source.go":  {"os.ReadDir": "our own descriptors"},
	"supervisor/strangers.go":      {"os.ReadDir": "steps of our own job"},
	"cmd/rsswarden/asknode.go":     {"os.ReadDir": "records"},
	"cmd/rsswarden/leaders.go":     {"os.ReadDir": "/proc, and a directory that we alone may write"},
	"cmd/rsswarden/wordsvalues.go": {"os.ReadDir": "/proc: no more than there are processes"},
}

// TestReadsAreBounded: who chooses how long a file is does not choose how much memory it
// takes. A process shows all of its memory as its command line if it likes.
func TestReadsAreBounded(t *testing.T) {
	found := map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil || notLinked.MatchString(file) {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if name := readsAll(call); name != "" {
					if found[file] == nil {
						found[file] = map[string]bool{}
					}
					found[file][name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for file, calls := range found {
		for name := range calls {
			if unbounded[file][name] == "" {
				t.Errorf("%s: %s reads without a bound, see rss/procfile", file, name)
			}
		}
	}
	for file, calls := range unbounded {
		for name := range calls {
			if !found[file][name] {
				t.Errorf("%s has no %s any more", file, name)
			}
		}
	}
}

// readsAll names a call that reads a file, a stream or a directory to its end; procfs is
// the library that reads files whole.
func readsAll(call *ast.CallExpr) string {
	f, _ := call.Fun.(*ast.SelectorExpr)
	if f == nil {
		return ""
	}
	of, _ := f.X.(*ast.Ident)
	switch f.Sel.Name {
	case "Readdirnames", "Readdir":
		if n, ok := call.Args[0].(*ast.UnaryExpr); ok && n.Op == token.SUB {
			return f.Sel.Name + "(-1)"
		}
		return ""
	case "CmdLine", "Environ", "ProcMaps", "ProcSMapsRollup":
		if len(call.Args) == 0 && (of == nil || of.Name != "os" && of.Name != "hold" && of.Name != "cmd") {
			return "procfs " + f.Sel.Name
		}
		return ""
	case "ReadAll":
		if inner, ok := call.Args[0].(*ast.CallExpr); ok {
			if limit, ok := inner.Fun.(*ast.SelectorExpr); ok && limit.Sel.Name == "LimitReader" {
				return ""
			}
		}
	case "ReadFile", "ReadDir":
	default:
		return ""
	}
	if of != nil && (of.Name == "os" || of.Name == "io" || of.Name == "ioutil") {
		return of.Name + "." + f.Sel.Name
	}
	return ""
}
