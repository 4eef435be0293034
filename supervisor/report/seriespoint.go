package report

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// The columns of a folding: four of each band, then six of each limit.
const (
	bandColumns  = 4 // anon, file, shmem, count
	limitColumns = 6 // used, low, most, charged, working set, size
)

// folding puts samples into points of equal length.
type folding struct {
	strand *Strand
	place  []int // of a limit of the run in the strand
	from   time.Duration
	step   time.Duration
	n      int
	sum    []int64   // the RSS of the sample that a point keeps, -1 for no point
	cols   [][]int64 // one value a point each
	row    []int64   // the sample at hand
	roles  map[rss.Role]int
	last   time.Duration
	any    bool
}

func newFolding(s *Strand, place []int, from, to, step time.Duration) *folding {
	f := &folding{strand: s, place: place, from: from / step * step, step: step, roles: map[rss.Role]int{}}
	for i, b := range s.Roles {
		f.roles[b.Role] = i
	}
	f.n = int((to-f.from)/step) + 1
	width := len(s.Roles)*bandColumns + len(s.Limits)*limitColumns
	f.row = make([]int64, width)
	f.sum = make([]int64, f.n)
	f.cols = make([][]int64, width)
	all := make([]int64, f.n*width)
	for i := range f.cols {
		f.cols[i] = all[i*f.n : (i+1)*f.n]
	}
	for i := range f.sum {
		f.sum[i] = -1
	}
	return f
}

func (f *folding) limitAt(i int) int { return len(f.strand.Roles)*bandColumns + i*limitColumns }

// add puts a sample into its point, and the one before it into the points
// between, where the two are at most gap apart.
func (f *folding) add(r *record.Run, s *record.Sample, gap time.Duration) {
	at := int((s.At - f.from) / f.step)
	if f.any && s.At-f.last <= gap {
		held := f.total()
		for i := max(0, int((f.last-f.from)/f.step)+1); i < min(at, f.n); i++ {
			f.put(i, held)
		}
	}
	f.read(r, s)
	f.last, f.any = s.At, true
	if s.At >= f.from && at < f.n {
		f.put(at, f.total())
	}
}

func (f *folding) total() int64 {
	sum := int64(0)
	for i := range f.strand.Roles {
		c := i * bandColumns
		sum += f.row[c] + f.row[c+1] + f.row[c+2]
	}
	return sum
}

// read fills the row with a sample.
func (f *folding) read(r *record.Run, s *record.Sample) {
	clear(f.row)
	for i := range f.strand.Limits {
		at := f.limitAt(i)
		for c := range limitColumns {
			f.row[at+c] = -1
		}
	}
	for _, u := range s.Procs {
		if u.Proc >= len(r.Procs) {
			continue
		}
		f.band(bandOf(&r.Procs[u.Proc]), u.Anon, u.File, u.Shmem, 1)
	}
	for _, b := range s.Roles {
		// A journal has the sum where it has no parts.
		f.band(bandOfRole(b.Role), max(b.Anon, b.RSS.Sub(b.File+b.Shmem)), b.File, b.Shmem, b.Count)
	}
	for i := range s.Limits {
		x := &s.Limits[i]
		if x.Limit >= len(f.place) || f.place[x.Limit] < 0 {
			continue
		}
		at := f.limitAt(f.place[x.Limit])
		used := int64(x.Used / rss.KiB)
		f.row[at], f.row[at+1] = used, used
		f.row[at+2] = max(used, int64(x.UsedMax/rss.KiB))
		f.row[at+3], f.row[at+4] = int64(x.Charged/rss.KiB), int64(x.WorkingSet/rss.KiB)
		f.row[at+5] = int64(x.Size / rss.KiB)
	}
}

func (f *folding) band(role rss.Role, anon, file, shmem rss.Bytes, count int) {
	c := f.roles[role] * bandColumns
	f.row[c] += int64(anon / rss.KiB)
	f.row[c+1] += int64(file / rss.KiB)
	f.row[c+2] += int64(shmem / rss.KiB)
	f.row[c+3] += int64(count)
}

// put joins the row to a point.
func (f *folding) put(i int, sum int64) {
	first := f.sum[i] < 0
	more := first || sum > f.sum[i]
	if more {
		f.sum[i] = sum
	}
	for c := range f.cols {
		was, now := f.cols[c][i], f.row[c]
		switch {
		case first:
		case c < f.limitAt(0):
			if !more {
				continue
			}
		default:
			now = f.join(c, was, now)
		}
		f.cols[c][i] = now
	}
}

// join keeps of two readings of a limit's column the one that a point tells.
func (f *folding) join(c int, was, now int64) int64 {
	switch kind := (c - f.limitAt(0)) % limitColumns; {
	case was < 0:
		return now
	case now < 0:
		return was
	case kind == 1, kind == 5: // low, size
		return min(was, now)
	}
	return max(was, now)
}

// halve joins each two points to one.
func (f *folding) halve() {
	half := (f.n + 1) / 2
	for i := range half {
		a, b := 2*i, 2*i+1
		if b == f.n || f.sum[a] < 0 || f.sum[b] < 0 {
			if b < f.n && f.sum[a] < 0 {
				a = b
			}
			f.sum[i] = f.sum[a]
			for c := range f.cols {
				f.cols[c][i] = f.cols[c][a]
			}
			continue
		}
		fuller := a
		if f.sum[b] > f.sum[a] {
			fuller = b
		}
		f.sum[i] = f.sum[fuller]
		for c, col := range f.cols {
			switch {
			case c < f.limitAt(0):
				col[i] = col[fuller]
			default:
				col[i] = f.join(c, col[a], col[b])
			}
		}
	}
	f.n, f.step = half, f.step*2
	f.sum = f.sum[:half]
	for c := range f.cols {
		f.cols[c] = f.cols[c][:half]
	}
}

// level returns the points, made fewer until their JSON takes at most budget
// bytes.
func (f *folding) level(offset time.Duration, budget int) *Level {
	for {
		l := f.points(offset)
		if f.n < 512 || len(appendLevel(nil, l)) <= budget {
			return l
		}
		f.halve()
	}
}

// points takes what is no point out of the columns.
func (f *folding) points(offset time.Duration) *Level {
	l := &Level{From: offset + f.from, Step: f.step}
	keep := make([]int, 0, f.n)
	for i, sum := range f.sum {
		if sum < 0 {
			continue
		}
		if k := len(keep); k > 0 && keep[k-1] == i-1 {
			l.Stretches[len(l.Stretches)-1].Count++
		} else {
			l.Stretches = append(l.Stretches, Stretch{i, 1})
		}
		keep = append(keep, i)
	}
	column := func(c int) []int64 {
		out := make([]int64, len(keep))
		for k, i := range keep {
			out[k] = f.cols[c][i]
		}
		return out
	}
	for _, i := range keep {
		l.Sum = append(l.Sum, f.sum[i])
	}
	for i := range f.strand.Roles {
		c := i * bandColumns
		l.Bands = append(l.Bands, BandPoints{column(c), column(c + 1), column(c + 2), column(c + 3)})
	}
	for i := range f.strand.Limits {
		c := f.limitAt(i)
		l.Limits = append(l.Limits, LimitPoints{
			column(c), column(c + 1), column(c + 2), column(c + 3), column(c + 4), column(c + 5),
		})
	}
	return l
}
