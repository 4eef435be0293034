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
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
