package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

// trainers is how many group j has, and manyMappings how many mappings each.
const (
	trainers     = 64
	manyMappings = 2000
)

// How often the watcher counts for a trainer that is far from its limits, and
// which part of a core, in %, it takes for that at most: countRest, fdRest and
// purseShares of the supervisor.
const (
	mapsEvery = 30 * time.Second
	fdsEvery  = time.Second
	mapsShare = 0.1
	fdsShare  = 0.01
)

// counting measures group j.
func (b *bench) counting() error {
	if err := b.countOnce(); err != nil {
		return err
	}
	return b.countIdle()
}

func (b *bench) mappings() int {
	if b.quick {
		return manyMappings / 10
	}
	return manyMappings
}

// ranks starts trainers, as far as their LOCAL_RANK makes them such, that stand
// still and have so many mappings each beside those of any program. They are of a
// file, or of none where its name is empty. The PID is their parent's.
func (b *bench) ranks(maps int, file string, wrap func(...string) []string) (*child, int, error) {
	args := []string{b.path("mappings"), strconv.Itoa(trainers), strconv.Itoa(maps)}
	if file != "" {
		args = append(args, file)
	}
	return b.sleepers(args, wrap)
}

// countOnce is what it takes to count once for all.
func (b *bench) countOnce() error {
	rounds, mappings := 6, b.mappings()
	if b.quick {
		rounds = 2
	}
	for _, tree := range []struct{ file, of string }{{"", "nothing"}, {b.path("mappings"), "a file"}} {
		c, pid, err := b.ranks(mappings, tree.file, nil)
		if err != nil {
			return err
		}
		defer c.end()
		r, err := b.countRow(fmt.Sprintf("%d × %d mappings of %s, counted once", trainers, mappings, tree.of), pid, "maps", rounds)
		if err != nil {
			return err
		}
		tellOften(r, mapsEvery, mapsShare)
		b.add(r)
		if tree.file != "" {
			continue
		}
		if r, err = b.countRow(fmt.Sprintf("descriptors of %d processes, counted once", trainers), pid, "fds", rounds); err != nil {
			return err
		}
		tellOften(r, fdsEvery, fdsShare)
		b.add(r)
	}
	return nil
}

// tellOften tells what counting so often takes, and how often the watcher can.
func tellOften(r *Row, every time.Duration, share float64) {
	took := r.Series[0].Median / 1e3
	r.tell(fmt.Sprintf("every %.0f s", every.Seconds()), 100*took/every.Seconds(), "% of a core")
	r.tell(fmt.Sprintf("at %v %% of a core, which the watcher takes at most, once in", share), max(100*took/share, every.Seconds()), "s")
}

// countRow has all readers count the same, in turns.
func (b *bench) countRow(name string, pid int, what string, rounds int) (*Row, error) {
	self := func(how string) []string {
		return []string{"/proc/self/exe", readerRole, how + "-" + what, strconv.Itoa(pid)}
	}
	readers := []*reader{{name: "ours", ours: true, args: self("ours")}, {name: "procfs", args: self("procfs")}}
	if why := b.missing("psutil"); why != "" {
		b.skip("psutil: " + why)
	} else {
		readers = append(readers, &reader{name: "psutil", args: []string{python, b.path("counts.py"), strconv.Itoa(pid), what}})
	}
	for _, r := range readers {
		var err error
		if r.child, err = b.start(r.args...); err != nil {
			return nil, err
		}
		defer r.child.end()
		if _, err := r.read(1, 0); err != nil {
			return nil, err
		}
	}
	for range rounds {
		for _, r := range readers {
			took, err := r.read(1, pause)
			if err != nil {
				return nil, err
			}
			r.cold = append(r.cold, took[0]/1e3)
		}
	}
	row := b.row(name, "ms of processor time")
	for _, r := range readers {
		row.put(r.name, r.ours, r.cold)
		// Every process has a [vsyscall], which ours leaves out as the limit does.
		if more := int(r.sum) - int(readers[0].sum); more != 0 && (what != "maps" || more != trainers+1) {
			row.note("%s counts %d where ours counts %d", r.name, r.sum, readers[0].sum)
		}
		if !r.ours {
			row.tell(r.name+" to ours", row.median(r.name)/row.median("ours"), "times")
		}
	}
	return row, nil
}

// countIdle is what holder and watcher take, watched at the same time.
func (b *bench) countIdle() error {
	own := func(file string, maps int) func(func(...string) []string) (*child, int, error) {
		return func(wrap func(...string) []string) (*child, int, error) { return b.ranks(maps, file, wrap) }
	}
	mappings := b.mappings()
	watched := []struct {
		name  string
		start func(func(...string) []string) (*child, int, error)
	}{
		{fmt.Sprintf("ours: trainers with %d mappings", mappings), own("", mappings)},
		{fmt.Sprintf("ours: trainers with %d of a file", mappings), own(b.path("mappings"), mappings)},
		{"ours: trainers with those of any program", own("", 0)},
		{"ours: no trainers", func(wrap func(...string) []string) (*child, int, error) { return b.crowd(trainers+1, wrap) }},
	}
	var subjects, watchers []*subject
	for _, w := range watched {
		c, _, err := w.start(func(command ...string) []string { return b.under([]string{"--quiet"}, command...) })
		if err != nil {
			return err
		}
		defer c.end()
		watcher, err := watcherOf(c.pid())
		if err != nil {
			return err
		}
		subjects = append(subjects, &subject{name: w.name, ours: true, pids: []int{c.pid(), watcher}})
		watchers = append(watchers, &subject{name: w.name, ours: true, pids: []int{watcher}})
	}
	// The first counts are made at once, and what the watcher's start has needed it
	// gives back after a while.
	settle, runs := 15*time.Second, 6
	if b.quick {
		settle, runs = time.Second, 2
	}
	if err := b.sleep(settle); err != nil {
		return err
	}
	for range runs {
		if err := b.idleRun(append(subjects, watchers...), b.idle/time.Duration(runs)); err != nil {
			return err
		}
	}
	for _, m := range measures {
		of, who := subjects, "holder and watcher"
		switch m.name {
		case "CPU, by schedstat", "voluntary context switches":
		case "RSS", "anonymous memory":
			of, who = watchers, "watcher"
		default:
			continue
		}
		r := b.row(fmt.Sprintf("%d trainers, %s: %s", trainers, who, m.name), m.unit)
		for _, s := range of {
			r.put(s.name, s.ours, s.runs[m.name])
		}
		switch m.name {
		case "CPU, by schedstat":
			// Mappings are counted in fewer runs than not: only the mean tells.
			all := make([]float64, len(r.Series))
			for i, s := range r.Series {
				all[i] = mean(s.Runs)
				r.tell("mean,"+strings.TrimPrefix(s.Who, "ours:"), all[i], r.Unit)
			}
			r.atMost("what the mappings add, by the means", all[0]-all[2], 0.1, r.Unit)
			r.atMost("what those of a file add", all[1]-all[2], 0.1, r.Unit)
			r.tell("what trainers without them add", all[2]-all[3], r.Unit)
		case "RSS":
			r.atMost("with the mappings", r.Series[0].Median, 12, r.Unit)
		}
		b.add(r)
	}
	return nil
}

// counter returns what counts for all processes of a tree in the way named. It
// does not look for new ones.
func counter(how string, pid int) (func() (uint64, error), error) {
	fs, err := procfs.NewFS("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot open /proc: %w", err)
	}
	pids, err := below(fs, pid)
	if err != nil {
		return nil, err
	}
	ours := proctree.NewCounter("/proc")
	count := map[string]func(pid int) (int, error){
		"ours-maps": func(pid int) (int, error) {
			c, err := ours.Maps(rss.ProcID{PID: pid})
			return c.N, err
		},
		"ours-fds": func(pid int) (int, error) {
			c, err := ours.Descriptors(rss.ProcID{PID: pid})
			return c.N, err
		},
		"procfs-maps": func(pid int) (int, error) {
			p, err := fs.Proc(pid)
			if err != nil {
				return 0, err
			}
			maps, err := p.ProcMaps()
			return len(maps), err
		},
		"procfs-fds": func(pid int) (int, error) {
			p, err := fs.Proc(pid)
			if err != nil {
				return 0, err
			}
			return p.FileDescriptorsLen()
		},
	}[how]
	if count == nil {
		return nil, fmt.Errorf("no reader %q", how)
	}
	return func() (uint64, error) {
		sum := 0
		for _, pid := range pids {
			n, err := count(pid)
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return uint64(sum), nil
	}, nil
}

// processorTime is what all threads of this process have taken.
func processorTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
