package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The widths of the table's columns: who, and each number.
const (
	wide   = 44
	number = 10
)

func printHead(w io.Writer, r *Report) {
	dirty := ""
	if r.Dirty {
		dirty = ", with changes"
	}
	fmt.Fprintf(w, "rsswarden %s (%.12s%s), %s\n", r.Version, r.Commit, dirty, r.Began.Format(time.RFC3339))
	fmt.Fprintf(w, "%d × %s, %.0f GiB, Linux %s, %s, load %.1f\n", r.CPUs, r.CPU, float64(r.Memory)/(1<<30), r.Kernel, runtime.Version(), r.Load)
	if r.Load > float64(r.CPUs)/2 {
		fmt.Fprintln(w, "the machine is busy: what follows shows that it works, not how fast it is")
	}
	if r.Quick {
		fmt.Fprintln(w, "quick: what follows shows that it works, not how fast it is")
	}
	fmt.Fprintf(w, "\n%-*s%*s%*s%*s  runs\n", wide, "", number, "median", number, "p95", number, "× ours")
}

// printGroup prints the rows of a group, and what was not measured in it.
func printGroup(w io.Writer, g group, rows []Row, skipped []Skipped, took time.Duration) {
	fmt.Fprintf(w, "\n%s  %s (%.0f s)\n", g.name, g.title, took.Seconds())
	for i := range rows {
		printRow(w, &rows[i])
	}
	for _, s := range skipped {
		fmt.Fprintf(w, "   not measured: %s\n", s.Why)
	}
}

func printRow(w io.Writer, r *Row) {
	fmt.Fprintf(w, "   %s, %s\n", r.Name, r.Unit)
	first := r.Series[0]
	for _, s := range r.Series {
		ratio := ""
		if first.Ours && first.Median > 0 && len(r.Series) > 1 {
			ratio = figure(s.Median / first.Median)
		}
		var runs []string
		for _, v := range s.Runs {
			runs = append(runs, figure(v))
		}
		fmt.Fprintf(w, "     %-*s%*s%*s%*s  %s\n", wide-5, s.Who, number, figure(s.Median), number, figure(s.P95), number, ratio, strings.Join(runs, " "))
	}
	for _, c := range r.Checks {
		fmt.Fprintf(w, "     %s\n", checkText(&c))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "     (%s)\n", n)
	}
}

// checkText is a check as a line of the table.
func checkText(c *Check) string {
	text := fmt.Sprintf("%-*s%*s", wide-5, "= "+c.What, number, figure(c.Value))
	if c.Unit != "" {
		text += " " + c.Unit
	}
	if c.Op == "" {
		return text
	}
	verdict := "met"
	if !c.Met {
		verdict = "MISSED"
	}
	op := map[string]string{"<=": "≤", ">=": "≥"}[c.Op]
	return fmt.Sprintf("%s  goal %s %s: %s", text, op, figure(c.Goal), verdict)
}

// printGoals sums up.
func printGoals(w io.Writer, r *Report) {
	met, missed := 0, []string{}
	for _, row := range r.Rows {
		for _, c := range row.Checks {
			switch {
			case c.Op == "":
			case c.Met:
				met++
			default:
				missed = append(missed, fmt.Sprintf("%s  %s: %s", row.Group, row.Name, strings.Join(strings.Fields(checkText(&c))[1:], " ")))
			}
		}
	}
	fmt.Fprintf(w, "\n%d goals met, %d missed, in %.0f s\n", met, len(missed), time.Since(r.Began).Seconds())
	for _, m := range missed {
		fmt.Fprintf(w, "  %s\n", m)
	}
}

// figure prints a number with three digits that count, and no exponent.
func figure(v float64) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a >= 1000:
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	digits := max(2-int(math.Floor(math.Log10(a))), 0)
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
