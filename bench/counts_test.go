package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// trainers is how many there are.
const trainers = 64

// How often the watcher counts for a trainer that is far from its limits, and
// which part of a core, in %, it takes for that at most: countRest, fdRest and
// purseShares of the supervisor.
const (
	mapsEvery = 30 * time.Second
	fdsEvery  = time.Second
	mapsShare = 0.1
	fdsShare  = 0.01
)

func measureCounts(b *bench) {
	mappings := pick(b, 2000, 200)
	b.scope(func() { countOnce(b, mappings) })
	b.scope(func() { countIdle(b, mappings) })
}

// ranks starts trainers, as far as their LOCAL_RANK makes them such, that stand
// still and have so many mappings each beside those of any program. They are of a
// file, or of none where its name is empty. The PID is their parent's.
func (b *bench) ranks(maps int, file string, wrap wrapper) (*child, int) {
	args := []string{path("mappings"), strconv.Itoa(trainers), strconv.Itoa(maps)}
	if file != "" {
		args = append(args, file)
	}
	return b.sleepers(wrap, args...)
}

// countOnce is what it takes to count once for all.
func countOnce(b *bench, mappings int) {
	_, pid := b.ranks(mappings, "", nil)
	countRow(b, fmt.Sprintf("%d × %d mappings of nothing, counted once", trainers, mappings), pid, "maps", mapsEvery, mapsShare)
	countRow(b, fmt.Sprintf("descriptors of %d processes, counted once", trainers), pid, "fds", fdsEvery, fdsShare)
	_, pid = b.ranks(mappings, path("mappings"), nil)
	countRow(b, fmt.Sprintf("%d × %d mappings of a file, counted once", trainers, mappings), pid, "maps", mapsEvery, mapsShare)
}

// countRow has all readers count the same, in turns, and tells what counting so often
// takes, and how often the watcher can.
func countRow(b *bench, name string, pid int, what string, every time.Duration, share float64) {
	readers := []*reader{goReader("ours", "ours-"+what, pid, 1), goReader("procfs", "procfs-"+what, pid, 1)}
	if !b.lacks("psutil", "psutil") {
		readers = append(readers, &reader{name: "psutil", args: []string{python, path("counts.py"), strconv.Itoa(pid), what}})
	}
	row := newRow(name, "ms of processor time")
	b.scope(func() {
		b.startReaders(readers, 1)
		for i, runs := range inTurns(pick(b, 6, 2), readers, func(r *reader) float64 { return r.read(1, pause)[0] / 1e3 }) {
			row.put(readers[i].name, runs)
		}
	})
	for _, r := range readers {
		// Every process has a [vsyscall], which ours leaves out as the limit does.
		if more := int(r.sum) - int(readers[0].sum); more != 0 && (what != "maps" || more != trainers+1) {
			row.note("%s counts %d where ours counts %d", r.name, r.sum, readers[0].sum)
		}
		if r != readers[0] {
			row.tell(r.name+" to ours", row.times(r.name, "ours"), "times")
		}
	}
	took := row.series[0].median() / 1e3
	row.tell(fmt.Sprintf("every %.0f s", every.Seconds()), 100*took/every.Seconds(), "% of a core")
	row.tell(fmt.Sprintf("at %v %% of a core, which the watcher takes at most, once in", share), max(100*took/share, every.Seconds()), "s")
	b.add(row)
}

// countIdle is what holder and watcher take, watched at the same time.
func countIdle(b *bench, mappings int) {
	var subjects, watchers []*subject
	quiet := under("--quiet")
	add := func(name string, c *child, _ int) {
		watcher := watcherOf(c.pid())
		subjects = append(subjects, &subject{name: name, pids: []int{c.pid(), watcher}})
		watchers = append(watchers, &subject{name: name, pids: []int{watcher}})
	}
	start := func(name string, maps int, file string) {
		c, pid := b.ranks(maps, file, quiet)
		add(name, c, pid)
	}
	start(fmt.Sprintf("ours: trainers with %d mappings", mappings), mappings, "")
	start(fmt.Sprintf("ours: trainers with %d of a file", mappings), mappings, path("mappings"))
	start("ours: trainers with those of any program", 0, "")
	c, pid := b.crowd(trainers+1, quiet)
	add("ours: no trainers", c, pid)
	// The first counts are made at once, and what the watcher's start has needed it
	// gives back after a while.
	b.watch(append(subjects, watchers...), pick(b, 15*time.Second, time.Second), pick(b, 6, 2))
	for _, m := range quantities {
		of, who := subjects, "holder and watcher"
		switch m.name {
		case "CPU, by schedstat", "voluntary context switches":
		case "RSS", "anonymous memory":
			of, who = watchers, "watcher"
		default:
			continue
		}
		r := b.watched(fmt.Sprintf("%d trainers, %s: ", trainers, who), m, of)
		switch m.name {
		case "CPU, by schedstat":
			// Mappings are counted in fewer runs than not: only the mean tells.
			all := make([]float64, len(r.series))
			for i, s := range r.series {
				all[i] = mean(s.runs)
				r.tell("mean,"+strings.TrimPrefix(s.who, "ours:"), all[i], r.unit)
			}
			r.atMost("what the mappings add, by the means", all[0]-all[2], 0.1, r.unit)
			r.atMost("what those of a file add", all[1]-all[2], 0.1, r.unit)
			r.tell("what trainers without them add", all[2]-all[3], r.unit)
		case "RSS":
			r.atMost("with the mappings", r.series[0].median(), 12, r.unit)
		}
		b.add(r)
	}
}
