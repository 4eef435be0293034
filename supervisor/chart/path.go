package chart

import (
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
)

// column is what one column of a static chart shows.
type column struct {
	x     float64
	point int     // in the level: the stack that is drawn, the fullest of the column
	limit []int64 // the primary limit, by its columns; nil for none
}

// of reads a column of the primary limit, in KiB, -1 for no reading.
func of(c int) func(d *column) int64 { return func(d *column) int64 { return d.limit[c] } }

// dots makes at most n columns of a level; pieces are what is drawn as one line.
// x is in columns.
func dots(s *analysis.RunSeries, l *analysis.Level, length time.Duration, n int) (pieces [][]column) {
	if len(l.Sum) == 0 {
		return nil
	}
	var primary []analysis.Column
	if s.Primary >= 0 {
		primary = l.Limits[s.Primary]
	}
	wide := float64(max(length, 1)) / float64(n)
	k, last := 0, -2
	for _, str := range l.Stretches {
		for i := range str.Count {
			at := l.From + time.Duration(str.First+i)*l.Step + l.Step/2
			x := min(max(float64(at), float64(s.From)), float64(s.To)) / wide
			col := min(int(x), n-1)
			if col != last {
				if i == 0 && col > last+1 || len(pieces) == 0 {
					pieces = append(pieces, nil)
				}
				d := column{x: x, point: k}
				for range primary {
					d.limit = append(d.limit, -1)
				}
				pieces[len(pieces)-1] = append(pieces[len(pieces)-1], d)
			}
			piece := pieces[len(pieces)-1]
			d := &piece[len(piece)-1]
			if l.Sum[k] > l.Sum[d.point] {
				d.point = k
			}
			for c := range primary {
				d.limit[c] = analysis.JoinReadings(c, d.limit[c], primary[c][k])
			}
			last = col
			k++
		}
	}
	return pieces
}

// pathWriter writes the path data of a line or an area.
type pathWriter struct {
	b    []byte
	x, y func(v float64) float64
	pen  bool
}

func (p *pathWriter) to(x, v float64) {
	command := byte('M')
	if p.pen {
		command = 'L'
	}
	p.b, p.pen = append(p.b, command), true
	p.b = appendShort(p.b, p.x(x))
	p.b = append(p.b, ' ')
	p.b = appendShort(p.b, p.y(v))
}

func (p *pathWriter) up() { p.pen = false }

func (p *pathWriter) close() { p.b, p.pen = append(p.b, 'Z'), false }

// line draws one value of each column; negative values are holes.
func (p *pathWriter) line(pieces [][]column, value func(d *column) int64) {
	for _, piece := range pieces {
		p.up()
		for i := range piece {
			v := value(&piece[i])
			if v < 0 {
				p.up()
				continue
			}
			if !p.pen && (i+1 == len(piece) || value(&piece[i+1]) < 0) {
				p.to(piece[i].x, float64(v)) // alone: as wide as it is seen
				p.to(piece[i].x+1, float64(v))
				continue
			}
			p.to(piece[i].x, float64(v))
		}
	}
}

// area fills between two values of each column.
func (p *pathWriter) area(pieces [][]column, low, high func(d *column) int64) {
	for _, piece := range pieces {
		p.up()
		for i := range piece {
			p.to(piece[i].x, float64(max(0, high(&piece[i]))))
		}
		if len(piece) == 1 {
			p.to(piece[0].x+1, float64(max(0, high(&piece[0]))))
			p.to(piece[0].x+1, float64(max(0, low(&piece[0]))))
		}
		for i := len(piece) - 1; i >= 0; i-- {
			p.to(piece[i].x, float64(max(0, low(&piece[i]))))
		}
		p.close()
	}
}

func appendShort(b []byte, v float64) []byte {
	b = strconv.AppendFloat(b, v, 'f', 1, 64)
	if n := len(b); b[n-1] == '0' {
		b = b[:n-2]
	}
	return b
}
