package metrics

import (
	"fmt"
	"strings"
)

// Markdown is the table of metrics as docs/metrics.md has it.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| metric | labels | what it is |\n|---|---|---|\n")
	for _, m := range All {
		var labels []string
		for _, l := range m.Labels {
			labels = append(labels, l.Name)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, strings.Join(labels, ", "), m.Help)
	}
	return b.String()
}

// Labels is the table of labels as docs/metrics.md has it.
func Labels() string {
	var b strings.Builder
	b.WriteString("| label | values |\n|---|---|\n")
	for _, l := range append(append([]Label{}, Common...), ByLimit, ByScope, ByRole, ByAction, ByOutcome) {
		text := l.Help
		if l.Values != nil {
			text += ": " + strings.Join(l.Values, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", l.Name, text)
	}
	return b.String()
}
