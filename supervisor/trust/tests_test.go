package trust

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// root is the module's, seen from here.
const root = "../.."

// there is each test of the module, as "supervisor/hold.TestTwin", with the strings
// that stand in the tests of its package: names of subtests and cases are among them.
var there = sync.OnceValues(func() (map[string]map[string]bool, error) {
	all := map[string]map[string]bool{}
	folders := map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		words := folders[dir]
		if words == nil {
			words = map[string]bool{}
			folders[dir] = words
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if word, err := strconv.Unquote(l.Value); err == nil {
					words[word] = true
				}
			}
			return true
		})
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				all[filepath.ToSlash(dir)+"."+f.Name.Name] = words
			}
		}
		return nil
	})
	return all, err
})

// wantTests fails where a test is named that is not there. Behind a slash stands the
// name of a subtest, or of a case in the test's table.
func wantTests(t *testing.T, where string, names []string) {
	t.Helper()
	all, err := there()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		// A package's path has slashes too, and no dot.
		dir, test, _ := strings.Cut(name, ".")
		test, sub, isSub := strings.Cut(test, "/")
		words, ok := all[dir+"."+test]
		if !ok || isSub && !words[sub] {
			t.Errorf("%s: there is no test %s", where, name)
		}
	}
}

// TestNamesAreLookedUp: the look-up itself tells what is there from what is not.
func TestNamesAreLookedUp(t *testing.T) {
	all, err := there()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"supervisor/trust.TestNamesAreLookedUp": true, "supervisor/trust.TestCases": true, "supervisor.TestCases": false, "supervisor/trust.TestNot": false,
	} {
		if _, ok := all[name]; ok != want {
			t.Errorf("%s: there %v, want %v", name, ok, want)
		}
	}
	if len(all) < 1000 {
		t.Errorf("%d tests were found in the module", len(all))
	}
}
