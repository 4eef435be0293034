// Command pictures makes the pictures of the README from one real run of the demo: what
// the terminal shows, and the report's timeline of its last run.
//
//	go run ./examples/demo/pictures docs/pictures
//
// Nothing in them is drawn by hand: lines are left out, and where, it says "…".
package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "usage: pictures DIR")
		return 2
	}
	if err := draw(args[0]); err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return 1
	}
	return 0
}

// draw runs the demo and writes demo.svg and report.svg into dir.
func draw(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.Command("bash", "examples/demo/demo.sh")
	cmd.Env = append(os.Environ(), "DEMO_SVG="+filepath.Join(dir, "report.svg"))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot run the demo: %w\n%s", err, out.Bytes())
	}
	return os.WriteFile(filepath.Join(dir, "demo.svg"), terminal(story(out.String())), 0o644)
}

// columns is the width of the terminal in the picture, mostOf how many lines of one part of
// the demo it shows from the part's beginning, and lastOf from its end.
const (
	columns = 118
	mostOf  = 14
	lastOf  = 4
)

// story leaves of the demo's output the parts that tell it: the bare run, the wrapped one and
// how the three ended.
func story(out string) (lines []string) {
	for _, part := range strings.Split(out, "\n== ") {
		if !strings.HasPrefix(part, "2. ") && !strings.HasPrefix(part, "3. ") && !strings.HasPrefix(part, "The three runs") {
			continue
		}
		all := strings.Split(strings.TrimSpace(part), "\n")
		all[0] = "# " + all[0]
		if len(all) > mostOf+lastOf+1 {
			all = append(append(all[:mostOf:mostOf], "…"), all[len(all)-lastOf:]...)
		}
		lines = append(append(lines, all...), "")
	}
	return lines[:max(0, len(lines)-1)]
}

// colour is that of a line, by its source.
func colour(line string) string {
	switch {
	case strings.HasPrefix(line, "# "):
		return "#e6edf3"
	case strings.HasPrefix(line, "$ "):
		return "#79c0ff"
	case strings.HasPrefix(line, "rsswarden: "):
		return "#7ee787"
	case strings.Contains(line, "being killed"), strings.HasPrefix(line, "exit status 137"), strings.Contains(line, "none: killed"):
		return "#ff7b72"
	}
	return "#9da7b3"
}

// terminal draws lines as a terminal shows them. What is wider ends with "…".
func terminal(lines []string) []byte {
	const size, step, margin = 13, 18, 16
	var b bytes.Buffer
	width, height := margin*2+columns*size*6/10, margin*2+len(lines)*step
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	b.WriteString("<title>A job that its limit kills, bare and under rsswarden: the output of make demo</title>\n")
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>`+"\n")
	fmt.Fprintf(&b, `<g font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%d">`+"\n", size)
	for i, line := range lines {
		if utf8.RuneCountInString(line) > columns {
			line = string([]rune(line)[:columns-1]) + "…"
		}
		fmt.Fprintf(&b, `<text xml:space="preserve" x="%d" y="%d" fill="%s">`, margin, margin+size+i*step, colour(line))
		_ = xml.EscapeText(&b, []byte(line)) // a buffer takes all
		b.WriteString("</text>\n")
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}
