// Package roff writes manual pages in the macros of man(7).
//
//	p := roff.New(roff.Title{Name: "rsswarden", Section: 1, Source: "rsswarden 1.0", Manual: "User Commands"})
//	p.Section("OPTIONS")
//	p.Term("--limit SIZE", "Keep the tree below SIZE.")
//	os.Stdout.WriteString(p.String())
//
// Text is taken as it is: nothing in it is a request or an escape of roff's, and a
// page has the same bytes whenever it is made.
package roff

import (
	"fmt"
	"strings"
)

// Title is the first and the last line of a page.
type Title struct {
	Name    string
	Section int
	Source  string // the program and its version
	Manual  string // what the section is called: "User Commands"
}

// Page is a page in the making.
type Page struct {
	b     strings.Builder
	begun bool // there is text below the last heading
}

// New begins a page. It bears no date: two builds of one version are the same.
func New(t Title) *Page {
	p := &Page{}
	fmt.Fprintf(&p.b, ".TH %s %d \"\" %s %s\n", quoted(strings.ToUpper(t.Name)), t.Section, quoted(t.Source), quoted(t.Manual))
	// A terminal of ASCII alone, as in the locale C, has no ellipsis.
	p.b.WriteString(".nh\n.ad l\n.fchar \\[u2026] ...\n")
	return p
}

func (p *Page) String() string { return p.b.String() }

// Section begins a section.
func (p *Page) Section(name string) { p.heading(".SH ", name) }

// Sub begins a part of a section.
func (p *Page) Sub(name string) { p.heading(".SS ", name) }

func (p *Page) heading(macro, name string) {
	p.b.WriteString(macro + quoted(name) + "\n")
	p.begun = false
}

// paragraph begins one, but where a heading has begun it.
func (p *Page) paragraph() {
	if p.begun {
		p.b.WriteString(".PP\n")
	}
	p.begun = true
}

// Text writes paragraphs, which a blank line parts. Their lines are filled again.
func (p *Page) Text(text string) {
	for para := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		p.paragraph()
		p.filled(para)
	}
}

// Term writes what something is called, and behind it what it is.
func (p *Page) Term(tag, text string) {
	p.begun = true
	p.b.WriteString(".TP\n.B " + quoted(tag) + "\n")
	p.filled(text)
}

// Verbatim writes lines as they are.
func (p *Page) Verbatim(text string) {
	p.paragraph()
	p.b.WriteString(".RS 4\n.nf\n")
	for l := range strings.Lines(strings.Trim(text, "\n")) {
		p.b.WriteString(line(strings.TrimSuffix(l, "\n")) + "\n")
	}
	p.b.WriteString(".fi\n.RE\n")
}

func (p *Page) filled(text string) {
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			p.b.WriteString(line(l) + "\n")
		}
	}
}

// line keeps what begins a request from doing so.
func line(s string) string {
	s = escaped(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// quoted is an argument of a macro.
func quoted(s string) string { return `"` + strings.ReplaceAll(escaped(s), `"`, `\(dq`) + `"` }

// escaped has each character be itself: text copied from a page into a shell has plain
// minus signs and quotes.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString("\\`")
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r > 0x7e:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		case r == '\t':
			b.WriteString("    ")
		case r < ' ':
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
