package report

import "strconv"

// appendLevel puts the JSON of a level: the points of a page are made few enough for it.
func appendLevel(b []byte, l *Level) []byte {
	b = append(b, `{"from":`...)
	b = strconv.AppendInt(b, l.From.Milliseconds(), 10)
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, l.Step.Milliseconds(), 10)
	b = append(b, `,"stretches":[`...)
	for i, s := range l.Stretches {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(s.First), 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, int64(s.Count), 10)
	}
	b = append(b, `],"bands":[`...)
	for i := range l.Bands {
		x := &l.Bands[i]
		b = appendTable(b, i, []string{"anon", "file", "shmem", "count"}, x.Anon, x.File, x.Shmem, x.Count)
	}
	b = append(b, `],"limits":[`...)
	for i := range l.Limits {
		x := &l.Limits[i]
		b = appendTable(b, i, []string{"used", "low", "most", "charged", "working", "size"},
			x.Used, below(x.Used, x.Low), below(x.Most, x.Used), x.Charged, x.Working, x.Size)
	}
	return append(b, "]}"...)
}

// below returns by how much low is below high. Low and the upper bound are told
// that way: mostly they are what "used" is, and nothing but that repeats.
func below(high, low []int64) []int64 {
	out := make([]int64, len(high))
	for i := range high {
		out[i] = max(0, high[i]-low[i])
	}
	return out
}

// appendTable puts named columns.
func appendTable(b []byte, i int, names []string, columns ...[]int64) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	b = append(b, '{')
	for k, name := range names {
		if k > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
		b = appendColumn(b, columns[k], name != "count")
	}
	return append(b, '}')
}

// appendColumn puts one column. Where it is coarse, as sizes are, its unit is the
// largest that still tells 65,000 steps: three digits are shown.
func appendColumn(b []byte, column []int64, coarse bool) []byte {
	b = append(b, '[')
	unit := int64(1)
	if coarse {
		top := int64(0)
		for _, v := range column {
			top = max(top, v)
		}
		for top/unit > 1<<17 {
			unit *= 2
		}
	}
	b = strconv.AppendInt(b, unit, 10) // first the unit
	last, same := int64(0), 0
	flush := func() {
		switch {
		case same == 0:
		case same < 4:
			for range same {
				b = append(b, ",0"...)
			}
		default:
			b = append(b, ",null,"...)
			b = strconv.AppendInt(b, int64(same), 10)
		}
		same = 0
	}
	for _, v := range column {
		if v >= 0 {
			v = (v + unit/2) / unit
		}
		if v == last {
			same++
			continue
		}
		flush()
		b = append(b, ',')
		b = strconv.AppendInt(b, v-last, 10)
		last = v
	}
	flush()
	return append(b, ']')
}
