package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// compareFiles prints how each row of the second report differs from the first.
func compareFiles(w io.Writer, names []string) error {
	old, err := readReport(names[0])
	if err != nil {
		return err
	}
	now, err := readReport(names[1])
	if err != nil {
		return err
	}
	printCompare(w, old, now)
	return nil
}

func printCompare(w io.Writer, old, now *Report) {
	fmt.Fprintf(w, "old: %s (%.12s), %s, load %.1f\nnew: %s (%.12s), %s, load %.1f\n",
		old.Version, old.Commit, old.Time.Format("2006-01-02 15:04"), old.LoadBefore,
		now.Version, now.Commit, now.Time.Format("2006-01-02 15:04"), now.LoadBefore)
	if old.CPU != now.CPU || old.CPUs != now.CPUs || old.Kernel != now.Kernel {
		fmt.Fprintf(w, "two machines: %d × %s, Linux %s, and %d × %s, Linux %s: only ratios can be compared\n",
			old.CPUs, old.CPU, old.Kernel, now.CPUs, now.CPU, now.Kernel)
	}
	if old.Quick || now.Quick {
		fmt.Fprintln(w, "quick runs: only good to see that this works")
	}
	fmt.Fprintf(w, "\n%-*s%*s%*s%*s\n", 2*wide, "", number, "old", number, "new", number, "change")
	for i := range now.Rows {
		r := &now.Rows[i]
		was := old.find(r.Group, r.Name)
		if was == nil {
			fmt.Fprintf(w, "%-*s only in the new report\n", 2*wide, r.Group+"  "+r.Name)
			continue
		}
		compareRow(w, was, r)
	}
	for i := range old.Rows {
		if r := &old.Rows[i]; now.find(r.Group, r.Name) == nil {
			fmt.Fprintf(w, "%-*s only in the old report\n", 2*wide, r.Group+"  "+r.Name)
		}
	}
}

func compareRow(w io.Writer, old, now *Row) {
	line := func(what, unit string, a, b float64, tail string) {
		change := "="
		if a != 0 && a != b {
			change = fmt.Sprintf("%+.1f %%", (b/a-1)*100)
		}
		fmt.Fprintf(w, "%-*s%*s%*s%*s %s\n", 2*wide, now.Group+"  "+now.Name+": "+what+unit, number, figure(a), number, figure(b), number, change, tail)
	}
	for _, s := range now.Series {
		i := slices.IndexFunc(old.Series, func(o Series) bool { return o.Who == s.Who })
		if i < 0 {
			continue
		}
		tail := ""
		if p := chance(old.Series[i].Runs, s.Runs); p > 0.05 {
			tail = fmt.Sprintf("~ (p=%.2f)", p)
		} else if p >= 0 {
			tail = fmt.Sprintf("(p=%.3f)", p)
		}
		line(s.Who, ", "+now.Unit, old.Series[i].Median, s.Median, tail)
	}
	for _, c := range now.Checks {
		i := slices.IndexFunc(old.Checks, func(o Check) bool { return o.What == c.What })
		if i < 0 {
			continue
		}
		tail := ""
		if was := old.Checks[i].Met; was != nil && c.Met != nil && *was != *c.Met {
			tail = map[bool]string{true: "goal met now", false: "goal MISSED now"}[*c.Met]
		}
		line("= "+c.What, "", old.Checks[i].Value, c.Value, tail)
	}
}

func (r *Report) find(group, name string) *Row {
	for i := range r.Rows {
		if r.Rows[i].Group == group && r.Rows[i].Name == name {
			return &r.Rows[i]
		}
	}
	return nil
}

// chance is the probability that two samples of the same thing differ by as much
// as these do: the Mann-Whitney U test by its normal approximation, ties
// corrected. It is -1 where there are too few runs to tell.
func chance(a, b []float64) float64 {
	if len(a) < 4 || len(b) < 4 {
		return -1
	}
	type run struct {
		v     float64
		first bool
	}
	var all []run
	for _, v := range a {
		all = append(all, run{v, true})
	}
	for _, v := range b {
		all = append(all, run{v, false})
	}
	slices.SortFunc(all, func(x, y run) int {
		switch {
		case x.v < y.v:
			return -1
		case x.v > y.v:
			return 1
		}
		return 0
	})
	ranks, ties := 0.0, 0.0
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].v == all[i].v {
			j++
		}
		for k := i; k < j; k++ {
			if all[k].first {
				ranks += float64(i+j+1) / 2
			}
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	m, n := float64(len(a)), float64(len(b))
	u := ranks - m*(m+1)/2
	spread := math.Sqrt(m * n / 12 * (m + n + 1 - ties/((m+n)*(m+n-1))))
	if spread == 0 {
		return 1
	}
	z := max(math.Abs(u-m*n/2)-0.5, 0) / spread
	return math.Erfc(z / math.Sqrt2)
}
