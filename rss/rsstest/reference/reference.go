// Package reference writes the pages of docs/reference from what code knows of itself,
// and fails a test where a page is not what the code says.
//
//	p := reference.New("Metrics", "What Prometheus gets to see.")
//	p.Table([]string{"metric", "what it is"}, rows)
//	p.Check(t, "docs/reference/metrics.md")
//
// `make reference` writes all pages again. What a page says is taken from declarations,
// see [Comments], and from tables that programs use; none of it is written twice.
package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
)

// Page is a page in Markdown in the making. It has the methods of a manual page, so that
// both are told by one function.
type Page struct {
	b    strings.Builder
	list bool // the last that was written is an entry of a list
}

// New begins a page. What it is about may be Markdown, with links.
func New(title, about string) *Page {
	p := &Page{}
	p.b.WriteString("<!-- made from the code by `make reference`; change it there -->\n\n# " + title + "\n\n" + about + "\n")
	return p
}

func (p *Page) String() string { return p.b.String() }

// Section begins a section.
func (p *Page) Section(name string) { p.heading("## ", name) }

// Sub begins a part of a section.
func (p *Page) Sub(name string) { p.heading("### ", name) }

func (p *Page) heading(mark, name string) {
	p.list = false
	p.b.WriteString("\n" + mark + name + "\n")
}

// Text writes paragraphs, which a blank line parts.
func (p *Page) Text(text string) {
	p.list = false
	for para := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		p.b.WriteString("\n" + plain(para) + "\n")
	}
}

// Term writes what something is called, and behind it what it is.
func (p *Page) Term(tag, text string) {
	if !p.list {
		p.b.WriteByte('\n')
	}
	p.list = true
	p.b.WriteString("- `" + tag + "`: " + strings.Join(strings.Fields(plain(text)), " ") + "\n")
}

// Verbatim writes lines as they are.
func (p *Page) Verbatim(text string) {
	if text = strings.Trim(text, "\n"); text != "" {
		p.list = false
		p.b.WriteString("\n```\n" + text + "\n```\n")
	}
}

// Table writes rows below a head. What cells have of Markdown stays Markdown.
func (p *Page) Table(head []string, rows [][]string) {
	p.list = false
	p.b.WriteByte('\n')
	row := func(cells []string) {
		p.b.WriteByte('|')
		for _, c := range cells {
			p.b.WriteString(" " + strings.ReplaceAll(strings.Join(strings.Fields(c), " "), "|", `\|`) + " |")
		}
		p.b.WriteByte('\n')
	}
	row(head)
	p.b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, r := range rows {
		row(r)
	}
}

// plain keeps what text for a terminal has from being HTML, outside code.
func plain(text string) string {
	parts := strings.Split(text, "`")
	for i := range parts {
		if i%2 == 0 {
			parts[i] = strings.ReplaceAll(parts[i], "<", `\<`)
		}
	}
	return strings.Join(parts, "`")
}

// Check wants the page to be the file of that name, seen from the module's root.
func (p *Page) Check(t *testing.T, name string) {
	t.Helper()
	Check(t, name, p.String())
}

// Check wants a file of the module to read as the code says.
func Check(t *testing.T, name, text string) {
	t.Helper()
	golden.Check(t, rsstest.Root(t)+"/"+name, text)
}

// Comments are what the source of a package says of its declarations.
type Comments struct {
	// Fields has the comments of a struct's fields, by "Type.Field".
	Fields map[string]string
	// Values has the string constants of a named type, in the order of the source.
	Values map[string][]Value
}

// Value is a constant with what its comment says; empty where there is none.
type Value struct{ Name, Value, Says string }

// CommentsOf reads the package in a folder, without its tests.
func CommentsOf(t *testing.T, dir string) *Comments {
	t.Helper()
	c := &Comments{Fields: map[string]string{}, Values: map[string][]Value{}}
	entries, err := fs.ReadDir(os.DirFS(dir), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+e.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				c.take(g)
			}
		}
	}
	return c
}

func (c *Comments) take(g *ast.GenDecl) {
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if body, ok := s.Type.(*ast.StructType); ok {
				c.fields(s.Name.Name, body)
			}
		case *ast.ValueSpec:
			kind, ok := s.Type.(*ast.Ident)
			for i, v := range s.Values {
				lit, isLit := v.(*ast.BasicLit)
				if !ok || !isLit || lit.Kind != token.STRING {
					continue
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					continue
				}
				c.Values[kind.Name] = append(c.Values[kind.Name], Value{s.Names[i].Name, text, says(s.Doc, s.Comment)})
			}
		}
	}
}

// fields takes the comments of a struct. One above a field also documents those below it
// whose names are in it.
func (c *Comments) fields(name string, body *ast.StructType) {
	above := ""
	for _, f := range body.Fields.List {
		if f.Doc != nil {
			above = says(f.Doc)
		}
		for _, n := range f.Names {
			text := says(f.Doc, f.Comment)
			if f.Doc == nil && f.Comment == nil && slices.Contains(words.FindAllString(above, -1), n.Name) {
				text = above
			}
			c.Fields[name+"."+n.Name] = text
		}
	}
}

func says(groups ...*ast.CommentGroup) string {
	var all []string
	for _, g := range groups {
		if g != nil {
			all = append(all, strings.Fields(g.Text())...)
		}
	}
	return strings.Join(all, " ")
}

var words = regexp.MustCompile(`[A-Za-z0-9_]+`)

// Renamed puts other names into a text, for whole words: those that a reader of JSON
// knows in the place of Go's. PID, RSS and the like are words of their own, and stay.
func Renamed(text string, names map[string]string) string {
	return words.ReplaceAllStringFunc(text, func(word string) string {
		if names[word] != "" && word != strings.ToUpper(word) {
			return "`" + names[word] + "`"
		}
		return word
	})
}
