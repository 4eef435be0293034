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
