package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Group k: a node full of jobs, and what the daemon takes for it.
const (
	nodeJobs    = 1000
	perJob      = 10 // processes, one of them the extern step's
	nodeNeeds   = 4  // GiB that must be available
	lookPause   = 10 * time.Second
	daemonAlone = "ours: rsswardend"
	daemonRead  = "ours: rsswardend, scraped every 10 s"
	nodeLook    = "ours: all jobs by their cgroups"
	nodePeer    = "procfs: AllProcs, Cgroups and Stat"
)

// node measures group k.
func (b *bench) node() error {
	if free := available(); free < nodeNeeds {
		b.skip(fmt.Sprintf("%.1f GiB are available, %d are needed", free, nodeNeeds))
		return nil
	}
	sizes, rounds := []int{100, 300, nodeJobs}, 10
	if b.quick {
		sizes, rounds = []int{10, 30}, 2
	}
	tree, err := b.newNodeTree()
	if err != nil {
		b.skip(err.Error())
		return nil
	}
	defer tree.end()
	var at, cost []float64
	var last *Row
	for _, jobs := range sizes {
		if err := tree.grow(jobs); err != nil {
			return err
		}
		if last, err = b.nodeLooks(jobs, rounds); err != nil {
			return err
		}
		at, cost = append(at, float64(jobs)), append(cost, last.Series[0].Median)
	}
	last.atMost(fmt.Sprintf("exponent, %.0f to %.0f jobs", at[0], at[len(at)-1]), exponent(at, cost), 1.25, "")
	b.report.Rows[len(b.report.Rows)-1] = *last
	return b.daemonIdle(tree)
}

// nodeLooks is the processor time of one look at so many jobs.
func (b *bench) nodeLooks(jobs, rounds int) (*Row, error) {
	row := b.row(fmt.Sprintf("a look at %d jobs of %d processes, processor time", jobs, perJob), "µs")
	readers := []*reader{
		{name: nodeLook, ours: true, args: []string{"/proc/self/exe", readerRole, "node-jobs", "1"}, batch: 6},
		{name: nodePeer, args: []string{"/proc/self/exe", readerRole, "node-procfs", "1"}, batch: 1},
	}
	var err error
	for _, r := range readers {
		if r.child, err = b.start(r.args...); err != nil {
			return nil, err
		}
		defer r.child.end()
		if _, err := r.read(2, 0); err != nil { // opens what is kept open
			return nil, err
		}
	}
	for range rounds {
		for _, r := range readers {
			took, err := r.read(r.batch, 0)
			if err != nil {
				return nil, err
			}
			r.warm = append(r.warm, mean(took))
		}
	}
	for _, r := range readers {
		row.put(r.name, r.ours, r.warm)
		if r.sum != uint64(jobs*perJob) {
			row.note("%s sees %d processes of %d", r.name, r.sum, jobs*perJob)
		}
	}
	row.tell("procfs to ours", row.median(nodePeer)/row.median(nodeLook), "times")
	b.add(row)
	return row, nil
}

// daemonIdle is what the daemon takes for as many jobs as there are now, beside a process
// that does the same through procfs: while all of their processes sleep, and while the
// memory of all changes between two looks.
func (b *bench) daemonIdle(tree *nodeTree) error {
	program := b.path("rsswardend")
	cmd := exec.CommandContext(b.ctx, "go", "build", "-trimpath", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", program, "./cmd/rsswardend")
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build rsswardend: %w\n%s", err, out)
	}
	var subjects []*subject
	for _, name := range []string{daemonRead, daemonAlone} {
		d, err := b.startDaemon(program)
		if err != nil {
			return err
		}
		defer d.end()
		subjects = append(subjects, &subject{name: name, ours: true, pids: []int{d.pid()}})
		if name == daemonRead {
			ctx, stop := context.WithCancel(b.ctx)
			defer stop()
			go scrape(ctx, d.address)
		}
	}
	peer := &reader{name: nodePeer}
	var err error
	if peer.child, err = b.start("/proc/self/exe", readerRole, "node-procfs", "1"); err != nil {
		return err
	}
	go peer.child.in.Write(fmt.Appendf(nil, "%d %d\n", 100000, lookPause.Microseconds()))
	subjects = append(subjects, &subject{name: nodePeer + ", every 10 s", pids: []int{peer.child.pid()}})
	defer func() {
		peer.child.cmd.Process.Kill() // it has years to go
		peer.child.cmd.Wait()
	}()
	if err := b.daemonRows("the daemon: ", subjects); err != nil {
		return err
	}
	if err := tree.wake(); err != nil {
		return err
	}
	for _, s := range subjects {
		s.runs = nil
	}
	return b.daemonRows("the daemon, all processes busy: ", subjects)
}

// daemonRows watches what runs.
func (b *bench) daemonRows(what string, subjects []*subject) error {
	settle, runs := 2*lookPause, 3
	if b.quick {
		settle, runs = time.Second, 2
	}
	if err := b.sleep(settle); err != nil {
		return err
	}
	for range runs {
		if err := b.idleRun(subjects, b.idle/time.Duration(runs)); err != nil {
			return err
		}
	}
	for _, m := range measures {
		r := b.row(what+m.name, m.unit)
		for _, s := range subjects {
			r.put(s.name, s.ours, s.runs[m.name])
		}
		switch m.name {
		case "CPU, by schedstat":
			r.atMost("alone", mean(r.runs(daemonAlone)), 1, r.Unit)
			r.atMost("scraped", mean(r.runs(daemonRead)), 1, r.Unit)
			r.note("looks of 10 s fall into runs of %v unevenly: the mean of the runs is what was used", b.idle/time.Duration(runs))
		case "RSS":
			r.atMost("scraped", r.median(daemonRead), 64, r.Unit)
		}
		b.add(r)
	}
	return nil
}

// runs are those of one of a row's series.
func (r *Row) runs(who string) []float64 {
	for _, s := range r.Series {
		if s.Who == who {
			return s.Runs
		}
	}
	return nil
}

// daemonChild is an rsswardend that runs.
type daemonChild struct {
	cmd     *exec.Cmd
	address string
}

func (d *daemonChild) pid() int { return d.cmd.Process.Pid }

// end ends it by SIGTERM, as whatever started it would.
func (d *daemonChild) end() {
	d.cmd.Cancel()
	d.cmd.Wait()
}

// startDaemon starts it on a free port.
func (b *bench) startDaemon(program string) (*daemonChild, error) {
	cmd := exec.CommandContext(b.ctx, program, "--listen", "127.0.0.1:0", "--interval", lookPause.String())
	cmd.Env = withoutSlurm(plain(os.Environ()))
	// By SIGTERM, and with us however we end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start rsswardend: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start rsswardend: %w", err)
	}
	d := &daemonChild{cmd: cmd}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), `msg="Listening on" address=`); ok {
			d.address = strings.TrimSpace(address)
			go io.Copy(io.Discard, out)
			return d, nil
		}
	}
	d.end()
	return nil, fmt.Errorf("cannot start rsswardend: it does not listen")
}

// scrape reads the metrics as Prometheus does.
func scrape(ctx context.Context, address string) {
	for {
		if resp, err := http.Get("http://" + address + "/metrics"); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		select {
		case <-time.After(lookPause):
		case <-ctx.Done():
			return
		}
	}
}

func withoutSlurm(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "SLURM") {
			out = append(out, kv)
		}
	}
	return out
}
