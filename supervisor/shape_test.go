package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var updateShape = flag.Bool("update-shape", false, "write testdata/shape.txt")

// TestShape holds what the structure costs a reader. A figure of testdata/shape.txt may
// only fall: "go test ./supervisor -run TestShape -update-shape" writes the new ones, and
// a commit that raises one says why.
func TestShape(t *testing.T) {
	got := shapeOf(t)
	const name = "testdata/shape.txt"
	if *updateShape {
		wardentest.NoError(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	wardentest.NoError(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the structure differs from %s; what is smaller is written by -update-shape:\n%s", name, diff)
	}
}

// shapeOf is the content of testdata/shape.txt: a line for each figure.
func shapeOf(t *testing.T) string {
	l := loadModule(t)
	var b strings.Builder
	line := func(value int, format string, args ...any) {
		fmt.Fprintf(&b, "%6d %s\n", value, fmt.Sprintf(format, args...))
	}
	engine := l.packages["supervisor"]
	line(hundreds(engine.lines), "lines of package supervisor, up to the next hundred")
	line(engine.mostCases(), "cases of the largest select in package supervisor")
	line(l.packages["supervisor/policy"].functionFields(), "fields of package policy that hold a function")
	for _, name := range []string{"LimitMemlock", "ActionGC", "ActionRecycle"} {
		line(l.naming(name), "files that name %s", name)
	}
	b.WriteString("\n")
	line(hundreds(l.sum(func(p *shapedPackage) int { return p.lines })), "lines of product, up to the next hundred")
	line(l.sum(func(p *shapedPackage) int { return len(p.files) }), "files of product")
	b.WriteString("\nfiles, largest cycle of files, most methods of a type, most fields of a type\n")
	for _, name := range slices.Sorted(maps.Keys(l.packages)) {
		p := l.packages[name]
		method, methods := largest(p.methods())
		field, fields := largest(p.fields())
		fmt.Fprintf(&b, "%6d %3d %4d %-16s %3d %-16s %s\n", len(p.files), p.cycle(), methods, method, fields, field, name)
	}
	return b.String()
}

// hundreds rounds up, so that a line more is no change of the structure.
func hundreds(lines int) int { return (lines + 99) / 100 * 100 }

// shapedModule is the module's packages that a program is made of, by their names below
// the module. What only tests import, in folders whose name ends in "test", is left out.
type shapedModule struct {
	packages map[string]*shapedPackage
}

type shapedPackage struct {
	lines int
	files map[string]*ast.File
	set   *token.FileSet
	info  *types.Info
	types *types.Package
}

// loadModule reads the packages with their types. Those of others come from export data.
func loadModule(t *testing.T) *shapedModule {
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles, CgoFiles       []string
	}
	var own []listed
	exports := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if name == p.ImportPath || slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return strings.HasSuffix(s, "test") }) {
			continue
		}
		own = append(own, p)
	}
	l := &shapedModule{packages: map[string]*shapedPackage{}}
	set := token.NewFileSet()
	from := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range own {
		one := &shapedPackage{files: map[string]*ast.File{}, set: set, info: &types.Info{
			Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		}}
		var parsed []*ast.File
		for _, file := range append(p.GoFiles, p.CgoFiles...) {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			wardentest.NoError(t, err)
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, file), text, parser.SkipObjectResolution)
			wardentest.NoError(t, err)
			one.lines += bytes.Count(text, []byte("\n"))
			one.files[filepath.Join(p.Dir, file)] = f
			parsed = append(parsed, f)
		}
		if len(parsed) == 0 {
			continue
		}
		// Calls into C do not check here; all else does.
		conf := types.Config{Importer: from, FakeImportC: true, Error: func(error) {}}
		one.types, err = conf.Check(p.ImportPath, set, parsed, one.info)
		if err != nil && len(p.CgoFiles) == 0 {
			t.Fatal(err)
		}
		l.packages[strings.TrimPrefix(p.ImportPath, module+"/")] = one
	}
	return l
}

func (l *shapedModule) sum(of func(*shapedPackage) int) (sum int) {
	for _, p := range l.packages {
		sum += of(p)
	}
	return sum
}

// naming counts the files in which a constant of package event is named.
func (l *shapedModule) naming(constant string) (n int) {
	for _, p := range l.packages {
		files := map[string]bool{}
		for _, objects := range []map[*ast.Ident]types.Object{p.info.Uses, p.info.Defs} {
			for id, object := range objects {
				if object != nil && object.Name() == constant && object.Pkg() != nil && object.Pkg().Path() == module+"/supervisor/event" {
					files[p.set.Position(id.Pos()).Filename] = true
				}
			}
		}
		n += len(files)
	}
	return n
}

func underlyingStruct(o types.Object) (*types.Struct, bool) {
	name, ok := o.(*types.TypeName)
	if !ok {
		return nil, false
	}
	s, ok := name.Type().Underlying().(*types.Struct)
	return s, ok
}

func (p *shapedPackage) fields() map[string]int {
	all := map[string]int{}
	for _, name := range p.types.Scope().Names() {
		if s, ok := underlyingStruct(p.types.Scope().Lookup(name)); ok {
			all[name] = s.NumFields()
		}
	}
	return all
}

// functionFields counts the fields of its structs through which it could call others back.
func (p *shapedPackage) functionFields() (n int) {
	for _, name := range p.types.Scope().Names() {
		s, ok := underlyingStruct(p.types.Scope().Lookup(name))
		for i := 0; ok && i < s.NumFields(); i++ {
			if _, is := s.Field(i).Type().Underlying().(*types.Signature); is {
				n++
			}
		}
	}
	return n
}

// methods counts those of each type.
func (p *shapedPackage) methods() map[string]int {
	all := map[string]int{}
	for _, object := range p.info.Defs {
		fn, ok := object.(*types.Func)
		if !ok || fn.Signature().Recv() == nil {
			continue
		}
		of := fn.Signature().Recv().Type()
		if pointer, ok := of.(*types.Pointer); ok {
			of = pointer.Elem()
		}
		if named, ok := of.(*types.Named); ok && !types.IsInterface(named) {
			all[named.Obj().Name()]++
		}
	}
	return all
}

func (p *shapedPackage) mostCases() (most int) {
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectStmt); ok {
				most = max(most, len(s.Body.List))
			}
			return true
		})
	}
	return most
}

// cycle is how many files the largest set has in which each leads to each by names,
// methods and fields that they use of one another.
func (p *shapedPackage) cycle() (most int) {
	uses := map[string]map[string]bool{}
	for id, object := range p.info.Uses {
		if object.Pkg() != p.types || object.Parent() != nil && object.Parent() != p.types.Scope() {
			continue
		}
		from, to := p.set.Position(id.Pos()).Filename, p.set.Position(object.Pos()).Filename
		if from != to && p.files[to] != nil {
			if uses[from] == nil {
				uses[from] = map[string]bool{}
			}
			uses[from][to] = true
		}
	}
	reached := map[string]map[string]bool{}
	for file := range p.files {
		reached[file] = map[string]bool{}
		follow(file, uses, reached[file])
	}
	for file, all := range reached {
		both := 0
		for other := range all {
			if reached[other][file] {
				both++
			}
		}
		most = max(most, both)
	}
	return most
}

// follow puts into seen what can be reached from a file, itself too.
func follow(file string, uses map[string]map[string]bool, seen map[string]bool) {
	if seen[file] {
		return
	}
	seen[file] = true
	for next := range uses[file] {
		follow(next, uses, seen)
	}
}

// largest is the name with the largest count, "-" where all are 0.
func largest(counts map[string]int) (name string, most int) {
	name = "-"
	for n, count := range counts {
		if count > most || count == most && count > 0 && n < name {
			name, most = n, count
		}
	}
	return name, most
}

// notLinked are folders from which neither program has anything.
var notLinked = regexp.MustCompile(`^\.\./(examples|bench|bin)/|test/|/rsstest`)

// inPrograms calls do for each syntax node of the two programs, with its folder.
func inPrograms(t *testing.T, do func(dir string, n ast.Node)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || notLinked.MatchString(path) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := strings.TrimPrefix(filepath.Dir(path), "../")
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil {
				do(dir, n)
			}
			return true
		})
		return nil
	})
	wardentest.NoError(t, err)
}

// wantCalls fails the test where the calls of which name returns a name are not these: how
// many there are of each "folder name".
func wantCalls(t *testing.T, want map[string]int, name func(*ast.CallExpr) string) {
	t.Helper()
	found := map[string]int{}
	inPrograms(t, func(dir string, n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok {
			if name := name(call); name != "" {
				found[dir+" "+name]++
			}
		}
	})
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("known -, found +:\n%s", diff)
	}
}

// goStatements are how many each folder has at most. A panic in a goroutine ends its
// process. A new one belongs in a package that has tests in which its goroutines panic
// (fault.Point, cmd/rsswarden.TestGoroutinePanics), or needs a reason why it cannot.
var goStatements = map[string]int{
	"supervisor/action": 7, "supervisor/alert": 5, "supervisor/control": 3, "supervisor/doctor": 2, "supervisor/event": 1, "supervisor/hold": 5, "supervisor/nodejobs": 1, "supervisor/probe": 2,
	"supervisor/record": 1, "supervisor/record/store": 4, "supervisor/remote": 4, "supervisor/screen": 1, "supervisor/tell": 2, "supervisor/textfile": 1, "supervisor/trim": 2, "supervisor/trim/once": 1, "supervisor/wake": 2, "cmd/rsswarden": 10, "cmd/rsswardend": 2,
}

// TestGoroutines: no goroutine is added unnoticed.
func TestGoroutines(t *testing.T) {
	found := map[string]int{}
	inPrograms(t, func(dir string, n ast.Node) {
		if _, ok := n.(*ast.GoStmt); ok {
			found[dir]++
		}
	})
	for dir, n := range found {
		if n > goStatements[dir] {
			t.Errorf("%s has %d go statements, at most %d: see goStatements", dir, n, goStatements[dir])
		}
	}
}

// TestRecovers: nothing else recovers from a panic, because half a watcher would be worse
// than none. Elsewhere a panic ends the process.
func TestRecovers(t *testing.T) {
	want := map[string]int{
		"supervisor/control recover": 2, // a request, answered by an error
		"supervisor/config recover":  1, // a file that cannot be read
		"supervisor/screen recover":  1, // the terminal is restored first
		"supervisor/trim recover":    1, // a trim: its thread ends and releases the process
		"supervisor/hold recover":    3, // the holder's loop; the start of a watcher, which is repeated
		"supervisor recover":         1, // a trim, which is refused
		"cmd/rsswarden recover":      5, // watching before there is a command; the helper for file systems; attach; what is beside a task
		"cmd/rsswardend recover":     1, // lines in AdminComment, without which it goes on
	}
	wantCalls(t, want, func(c *ast.CallExpr) string {
		if f := types.ExprString(c.Fun); f == "recover" {
			return f
		}
		return ""
	})
}

// TestReadsAreBounded: who chooses the length of a file does not choose how much memory
// reading it takes. What is read or listed whole is short for the reason given; all else
// goes through rss/procfile or an io.LimitReader.
func TestReadsAreBounded(t *testing.T) {
	want := map[string]int{
		"cmd/rsswarden os.ReadDir":           1, // /proc
		"rss/cgroup os.ReadDir":              3, // steps of our job; groups that we made; a search with a bound
		"rss/proctree os.ReadDir":            1, // our own descriptors
		"slurm os.ReadDir":                   1, // steps of a job, which root alone makes
		"supervisor/hold io.ReadAll":         1, // from the process that started us
		"supervisor/hold os.ReadDir":         3, // our own descriptors and threads
		"supervisor/node os.ReadDir":         1, // a directory that we alone may write
		"supervisor/limit os.ReadDir":        2, // steps of our job and their tasks
		"supervisor/nodejobs os.ReadDir":     3, // jobs and steps, which Slurm makes
		"supervisor/population Readdirnames": 1, // /proc
		"supervisor/population os.ReadDir":   1, // steps of our job
		"supervisor/record/store os.ReadDir": 2, // records; our own descriptors
		"supervisor/remote os.ReadDir":       3, // /proc; directories that we alone may write
	}
	wantCalls(t, want, func(c *ast.CallExpr) string {
		f, _ := c.Fun.(*ast.SelectorExpr)
		if f == nil {
			return ""
		}
		switch name := types.ExprString(f); f.Sel.Name {
		case "Readdirnames", "Readdir":
			if types.ExprString(c.Args[0]) == "-1" {
				return f.Sel.Name
			}
		case "CmdLine", "Environ", "ProcMaps", "ProcSMapsRollup": // of procfs, which reads whole files
			if len(c.Args) == 0 && name != "os.Environ" && name != "hold.Environ" && name != "cmd.Environ" {
				return "procfs " + f.Sel.Name
			}
		case "ReadAll", "ReadFile", "ReadDir":
			if (strings.HasPrefix(name, "os.") || strings.HasPrefix(name, "io.")) && !strings.HasPrefix(types.ExprString(c.Args[0]), "io.LimitReader(") {
				return name
			}
		}
		return ""
	})
}

// TestProgramsStarted: what is started where is a closed list, and what a shell runs is
// the user's own text or a constant.
func TestProgramsStarted(t *testing.T) {
	want := map[string]int{
		`cmd/rsswarden runs "/proc/self/exe" exportCommand`: 1,
		`cmd/rsswarden runs "/proc/self/exe" taskCommand`:   1, // a watcher beside a task: ourselves
		"cmd/rsswardend runs name":                          1, // sacct, sacctmgr
		`cmd/rsswarden runs "squeue" "--noheader"`:          1, // completion of --job
		"supervisor/doctor runs cat":                        1, // doctor: ourselves
		"supervisor/doctor runs path":                       1, // doctor: Python
		`supervisor/hold runs "/proc/self/exe"`:             1, // a watcher at rest: ourselves
		"cmd/rsswarden runs name":                           2, // sacct, scontrol
		`slurm runs "scontrol"`:                             1,
		`supervisor/action runs "/bin/sh" "-c" putOutside`:  1,
		`supervisor/action runs "/bin/sh" "-c" p.Command`:   1, // exec=, the user's own text
		"supervisor/alert runs p.Path SendCommand":          1,
		`supervisor/loader runs u.Executable "-B"`:          1, // the training's Python with a file of the hook
		`supervisor/remote runs "srun"`:                     1,
	}
	constants := map[string]bool{}
	inPrograms(t, func(_ string, n ast.Node) {
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					constants[name.Name] = true
				}
			}
		}
	})
	wantCalls(t, want, func(c *ast.CallExpr) string {
		args := c.Args
		switch types.ExprString(c.Fun) {
		case "exec.CommandContext":
			args = args[1:]
		case "exec.Command", "os.StartProcess", "syscall.StartProcess", "syscall.ForkExec", "syscall.Exec", "unix.Exec":
		default:
			return ""
		}
		name := "runs"
		for _, a := range args[:min(3, len(args))] {
			word := types.ExprString(a)
			if strings.HasPrefix(word, "args") || strings.Contains(word, "(") || word == "dir" {
				break
			}
			name += " " + word
		}
		return name
	})
	for _, name := range []string{"putOutside", "SendCommand", "exportCommand"} {
		if !constants[name] {
			t.Errorf("%s is no constant", name)
		}
	}
}

// TestPure: what judges and words what was seen has the same answer for the same values, live,
// in a replay and in a test: it reads no file, no clock and no random number.
func TestPure(t *testing.T) {
	pure := []string{"cadence", "diagnosis", "phrase", "policy", "text", "view"}
	packages := []string{"os", "os/exec", "io/fs", "net", "net/http", "math/rand", "math/rand/v2", "golang.org/x/sys/unix", "syscall"}
	calls := []string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.NewTimer", "time.NewTicker", "time.AfterFunc"}
	seen := map[string]bool{}
	inPrograms(t, func(dir string, n ast.Node) {
		name := strings.TrimPrefix(dir, "supervisor/")
		if !slices.Contains(pure, name) {
			return
		}
		seen[name] = true
		switch n := n.(type) {
		case *ast.ImportSpec:
			if path, _ := strconv.Unquote(n.Path.Value); slices.Contains(packages, path) {
				t.Errorf("package %s imports %s", name, path)
			}
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && slices.Contains(calls, of.Name+"."+n.Sel.Name) {
				t.Errorf("package %s uses %s.%s", name, of.Name, n.Sel.Name)
			}
		}
	})
	if len(seen) != len(pure) {
		t.Errorf("only %v were looked at", seen)
	}
}
