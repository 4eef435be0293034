package trust

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Why no test has a goroutine panic. Nothing takes a panic up but what TestRecovers
// lists, so in the watcher it ends the watcher, whichever goroutine it is in.
const (
	ends     = "it waits for an end, or takes what is nobody's any more, and reads nothing"
	noJob    = "of a command that tells: no job waits for its process"
	noRun    = "of attach, which no job waits for: cmd/rsswarden.TestAttachPanics"
	noDaemon = "of the node's daemon: cmd/rsswarden.TestPartOfOursFails/daemon killed"
	noSlurm  = "no test without Slurm comes there; it is the watcher's"
	watchers = "it is the watcher's, and short"
	takenUp  = "a panic in it is taken up: TestRecovers"
)

// unbroken are the goroutines in which no test has something fail, by file and function,
// each with the reason. Of one function all are meant that are not tested.
var unbroken = map[string]string{
	"cmd/rsswarden/attach.go describe":        noRun,
	"cmd/rsswarden/attach.go attach":          noRun,
	"cmd/rsswarden/attach.go commandLine":     noRun,
	"supervisor/follow.go Follow":             noRun,
	"supervisor/followjob.go FollowJob":       noRun,
	"cmd/rsswarden/topnodes.go fetchJob":      noJob,
	"cmd/rsswarden/topnodes.go quiet":         noJob,
	"cmd/rsswarden/whom.go ask":               noJob,
	"cmd/rsswarden/words.go printWords":       noJob,
	"cmd/rsswarden/limits.go sides":           noJob,
	"cmd/rsswarden/doctor.go examine":         noJob,
	"cmd/rsswarden/trimpause.go newInterlude": noJob,
	"cmd/rsswarden/wordsvalues.go jobWords":   noJob,
	"cmd/rsswarden/fanout.go run":             noJob,
	"cmd/rsswarden/leaders.go ourRuns":        noJob,
	"cmd/rsswardend/serve.go serveScrapes":    noDaemon,
	"supervisor/nodejobs/notices.go listen":   noDaemon,

	"cmd/rsswarden/doctor.go within":  noJob,
	"supervisor/screen/run.go safely": takenUp,
	"supervisor/control/serve.go ask": takenUp,
	"supervisor/trim/tracer.go start": takenUp,
	"supervisor/trim/tracer.go trace": takenUp,
	"supervisor/hold/trim.go open":    takenUp,

	"supervisor/probe/reader.go Ask":         "each read that it is given is one of those here: probe.New and probe.NewQueue",
	"supervisor/probe/reader.go Run":         "what it is given is one of those here: probe.Run",
	"supervisor/hold/threads.go makeThreads": ends,
	"supervisor/standby.go standBy":          ends,
	"supervisor/control/server.go Close":     ends,
	"supervisor/control/serve.go stream":     ends,
	"supervisor/action/program.go run":       ends,
	"supervisor/alert/program.go Send":       ends,
	"supervisor/alert/program.go Leave":      ends,

	"supervisor/rankjob.go keepSteps":                    noSlurm,
	"supervisor/requeueprocess.go sayLastLife":           noSlurm,
	"supervisor/requeueprocess.go keep":                  "of the process that puts a job back, not the watcher; slurm.TestRequeueCallsEnd has that fail",
	"supervisor/requeueput.go Start":                     noSlurm,
	"supervisor/requeueput.go runPut":                    ends,
	"supervisor/slim.go slim":                            watchers,
	"supervisor/exporting.go dropTextfile":               watchers,
	"supervisor/joining.go join":                         watchers,
	"supervisor/side.go readWithin":                      watchers,
	"supervisor/record/live.go listen":                   watchers,
	"supervisor/record/source.go startWithoutPrivileges": noJob,
}

// TestGoroutines: each goroutine of either program has a part of its own that a test has
// panic, or a reason why none does.
func TestGoroutines(t *testing.T) {
	words := map[string]bool{}
	for _, name := range []string{"brokengoroutine_test.go", "holderfails_test.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "cmd/rsswarden", name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if word, err := strconv.Unquote(l.Value); err == nil {
					words[word] = true
				}
			}
			return true
		})
	}
	found := map[string]bool{}
	for _, dir := range packages(t) {
		set := token.NewFileSet()
		files, points := map[string]*ast.File{}, map[string][]string{}
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files[dir+"/"+filepath.Base(name)] = file
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
					points[f.Name.Name] = append(points[f.Name.Name], pointsIn(f.Body)...)
				}
			}
		}
		for name, file := range files {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Body == nil {
					continue
				}
				where := name + " " + f.Name.Name
				ast.Inspect(f.Body, func(n ast.Node) bool {
					run, read := runs(n)
					if run == nil {
						return true
					}
					if slices.ContainsFunc(pointsOf(run, read, points), func(part string) bool { return words[part] }) {
						return true
					}
					found[where] = true
					if unbroken[where] == "" {
						t.Errorf("%s: a goroutine in %s that no test has panic, and no reason why", set.Position(n.Pos()), f.Name.Name)
					}
					return true
				})
			}
		}
	}
	for where := range unbroken {
		if !found[where] {
			t.Errorf("%s starts no goroutine that no test has panic", where)
		}
	}
}

// packages are the folders of which the two programs have anything.
func packages(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		dir, err := filepath.Rel(root, path)
		if err == nil && !notLinked.MatchString(dir+"/") {
			dirs = append(dirs, dir)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// runs is what a statement or call has run in a goroutine: that of a go statement, or a
// read of package probe. It is nil for others.
func runs(n ast.Node) (run ast.Expr, read bool) {
	switch n := n.(type) {
	case *ast.GoStmt:
		return n.Call.Fun, false
	case *ast.CallExpr:
		if of, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"New", "NewQueue", "Run"}, of.Sel.Name) {
			if p, ok := of.X.(*ast.Ident); ok && p.Name == "probe" {
				return n.Args[len(n.Args)-1], true
			}
		}
	}
	return nil, false
}

// pointsOf are the parts that a goroutine may be asked to fail in: of its function, and
// of what that calls in its package. A read has its own.
func pointsOf(run ast.Expr, read bool, points map[string][]string) (parts []string) {
	body, ok := run.(*ast.FuncLit)
	if !ok {
		return points[name(run)]
	}
	parts = pointsIn(body.Body)
	ast.Inspect(body.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && len(parts) == 0 && !read {
			parts = points[called(c)]
		}
		return true
	})
	return parts
}

func called(c *ast.CallExpr) string { return name(c.Fun) }

// name is that of a function.
func name(f ast.Expr) string {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// pointsIn are the names in fault.Point("name").
func pointsIn(body *ast.BlockStmt) (parts []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && len(c.Args) == 1 && called(c) == "Point" {
			if l, ok := c.Args[0].(*ast.BasicLit); ok {
				if part, err := strconv.Unquote(l.Value); err == nil {
					parts = append(parts, part)
				}
			}
		}
		return true
	})
	return parts
}
