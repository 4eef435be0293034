package trust

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// startedBy are the places that start a program, with its name and first argument as they
// stand there. A shell is started by the two that say so.
var startedBy = map[string][]string{
	"supervisor/action/program.go": {`"/bin/sh" "-c" p.Command`}, // exec=, the user's own text
	"supervisor/requeueput.go":     {`"/bin/sh" "-c" putOutside`},
	"supervisor/alert/program.go":  {"p.Path SendCommand"},
	"slurm/find.go":                {`"scontrol"`},
	"slurm/requeuesteps.go":        {`"scontrol"`},
	"cmd/rsswarden/report.go":      {"name"}, // sacct, scontrol
	"cmd/rsswarden/fanout.go":      {`"srun"`},
	"cmd/rsswarden/records.go":     {`"/proc/self/exe" exportCommand`},
	"cmd/rsswarden/doctortry.go":   {"path", "cat"},           // Python, ourselves
	"supervisor/loader/trial.go":   {`u.Executable "-B"`},     // the training's own Python, with a file of the hook
	"cmd/rsswarden/wordsvalues.go": {`"squeue" "--noheader"`}, // behind --job, at the key Tab
}

// notLinked are folders of which neither program has anything.
var notLinked = regexp.MustCompile(`^(examples|cmd/bench|bin)/|test/|/rsstest`)

// TestProgramsStarted: what is started where is known, and what a shell reads there is the
// user's own or a constant.
func TestProgramsStarted(t *testing.T) {
	got := map[string][]string{}
	constants := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil || notLinked.MatchString(file) {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				if n.Tok == token.CONST {
					for _, spec := range n.Specs {
						for _, name := range spec.(*ast.ValueSpec).Names {
							constants[name.Name] = true
						}
					}
				}
			case *ast.CallExpr:
				if args, ok := starts(n); ok {
					got[file] = append(got[file], words(set, src, args))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(startedBy, got); diff != "" {
		t.Errorf("known -, found +:\n%s", diff)
	}
	for _, name := range []string{"putOutside", "SendCommand", "exportCommand"} {
		if !constants[name] {
			t.Errorf("%s is no constant", name)
		}
	}
}

// starts says that a call starts a program, and gives the program and its arguments.
func starts(call *ast.CallExpr) (args []ast.Expr, ok bool) {
	f, _ := call.Fun.(*ast.SelectorExpr)
	if f == nil {
		return nil, false
	}
	of, _ := f.X.(*ast.Ident)
	if of == nil {
		return nil, false
	}
	switch name := of.Name + "." + f.Sel.Name; {
	case name == "exec.CommandContext":
		return call.Args[1:], true
	case name == "exec.Command":
		return call.Args, true
	default:
		return call.Args, slices.Contains([]string{"os.StartProcess", "syscall.StartProcess", "syscall.ForkExec", "syscall.Exec", "unix.Exec"}, name)
	}
}

// words are the program and its first arguments, up to those that are made on the spot.
func words(set *token.FileSet, src []byte, args []ast.Expr) string {
	var all []string
	for _, a := range args[:min(3, len(args))] {
		word := string(src[set.Position(a.Pos()).Offset:set.Position(a.End()).Offset])
		if strings.HasPrefix(word, "args") || strings.Contains(word, "(") || word == "dir" {
			break
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}
