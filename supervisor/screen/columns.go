package screen

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
)

// column is one column of a table, and what it may be sorted by.
type column struct {
	key, title string
	width      int
	left       bool // aligned to the left
	// drop is when the column goes where the screen is narrow: the greatest
	// first, 0 never.
	drop int
	cell func(*row) string
	// less compares two rows, nil for by their places; most says that the
	// greatest comes first.
	less func(a, b *row) int
	most bool
}

func amount(f func(*row) rss.Bytes) (func(*row) string, func(a, b *row) int) {
	return func(r *row) string { return size(f(r)) },
		func(a, b *row) int { return cmp.Compare(f(a), f(b)) }
}

func number(f func(*row) uint64) (func(*row) string, func(a, b *row) int) {
	return func(r *row) string { return strconv.FormatUint(f(r), 10) },
		func(a, b *row) int { return cmp.Compare(f(a), f(b)) }
}

func word(f func(*row) string) (func(*row) string, func(a, b *row) int) {
	return f, func(a, b *row) int { return natural(strings.ToLower(f(a)), strings.ToLower(f(b))) }
}

func bytesColumn(key, title string, drop int, f func(*row) rss.Bytes) column {
	c := column{key: key, title: title, width: max(6, len(title)+1), drop: drop, most: true}
	c.cell, c.less = amount(f)
	return c
}

func numberColumn(key, title string, width, drop int, f func(*row) uint64) column {
	c := column{key: key, title: title, width: width, drop: drop, most: true}
	c.cell, c.less = number(f)
	return c
}

// countedColumn is for numbers that are not always counted, and are 0 then.
func countedColumn(key, title string, width, drop int, f func(*row) uint64) column {
	c := numberColumn(key, title, width, drop, f)
	c.cell = func(r *row) string { return count(f(r)) }
	return c
}

func wordColumn(key, title string, width, drop int, f func(*row) string) column {
	c := column{key: key, title: title, width: width, drop: drop, left: true}
	c.cell, c.less = word(f)
	return c
}

// shared are the columns that both tables have.
var (
	nodeColumn = wordColumn("node", "NODE", 5, 0, func(r *row) string { return r.node.name })
	rankColumn = column{key: "rank", title: "RANK", width: 5, cell: func(r *row) string { return task(r.task()) }}
	stepColumn = wordColumn("step", "STEP", 6, 2, (*row).step)
	pidColumn  = column{
		key: "pid", title: "PID", width: 7, cell: func(r *row) string { return count(r.pid()) },
		less: func(a, b *row) int { return cmp.Compare(a.pid(), b.pid()) },
	}
	growthColumn = column{
		key: "growth", title: "GROW/s", width: 7, most: true, cell: func(r *row) string { return growth(r.growth) },
		less: func(a, b *row) int { return cmp.Compare(a.growth, b.growth) },
	}
	commandColumn = wordColumn("command", "COMMAND", 10, 0, (*row).command)
)

// view is one of the two tables.
type view int

const (
	ranksView view = iota
	procsView
)

func (v view) String() string { return [...]string{"ranks", "processes"}[v] }

// columns are those of each table, in their order on a wide screen.
var columns = [...][]column{
	ranksView: {
		nodeColumn, rankColumn, stepColumn, pidColumn,
		bytesColumn("rss", "RSS", 0, func(r *row) rss.Bytes { return r.rank.RSS }),
		growthColumn,
		bytesColumn("anon", "ANON", 7, func(r *row) rss.Bytes { return r.rank.Anon }),
		bytesColumn("file", "FILE", 6, func(r *row) rss.Bytes { return r.rank.File }),
		bytesColumn("shmem", "SHMEM", 6, func(r *row) rss.Bytes { return r.rank.Shmem }),
		numberColumn("procs", "PROCS", 6, 8, func(r *row) uint64 { return uint64(r.rank.Procs) }),
		numberColumn("workers", "WORKERS", 8, 4, func(r *row) uint64 { return uint64(r.rank.Workers) }),
		numberColumn("recycled", "RECYCLED", 9, 5, func(r *row) uint64 { return uint64(r.rank.Recycled) }),
		wordColumn("hook", "HOOK", 7, 3, func(r *row) string { return r.rank.Hook }),
		commandColumn,
	},
	procsView: {
		nodeColumn, rankColumn, pidColumn,
		wordColumn("role", "ROLE", 8, 1, func(r *row) string { return roleName(r.proc.Role) }),
		bytesColumn("rss", "RSS", 0, func(r *row) rss.Bytes { return r.proc.RSS }),
		bytesColumn("anon", "ANON", 2, func(r *row) rss.Bytes { return r.proc.Anon }),
		bytesColumn("file", "FILE", 3, func(r *row) rss.Bytes { return r.proc.File }),
		bytesColumn("shmem", "SHMEM", 4, func(r *row) rss.Bytes { return r.proc.Shmem }),
		{
			key: "pss", title: "PSS", width: 6, drop: 6, most: true, cell: func(r *row) string {
				if r.proc.PSS == nil {
					return "-"
				}
				return size(*r.proc.PSS)
			},
			less: func(a, b *row) int { return cmp.Compare(pss(a), pss(b)) },
		},
		growthColumn,
		countedColumn("maps", "MAPS", 6, 8, func(r *row) uint64 { return r.proc.Maps }),
		countedColumn("fds", "FDS", 6, 7, func(r *row) uint64 { return r.proc.FDs }),
		countedColumn("threads", "THR", 5, 9, func(r *row) uint64 { return uint64(r.proc.Threads) }),
		wordColumn("state", "S", 2, 5, func(r *row) string { return r.proc.State }),
		commandColumn,
	},
}

func pss(r *row) rss.Bytes {
	if r.proc.PSS == nil {
		return 0
	}
	return *r.proc.PSS
}

// roleName is a role in at most eight columns.
func roleName(r rss.Role) string {
	switch r {
	case rss.RolePinThread:
		return "pin"
	case rss.RoleShmManager:
		return "shm"
	}
	return string(r)
}

// Keys lists what the tables can be sorted by.
func Keys() []string {
	var all []string
	seen := map[string]bool{}
	for _, table := range columns {
		for _, c := range table {
			if !seen[c.key] {
				seen[c.key] = true
				all = append(all, c.key)
			}
		}
	}
	return all
}

func columnNamed(v view, key string) *column {
	for i := range columns[v] {
		if columns[v][i].key == key {
			return &columns[v][i]
		}
	}
	return nil
}
