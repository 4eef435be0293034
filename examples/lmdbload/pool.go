package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// depth is how many records a worker has at once: one it reads, the rest in
	// its pipe.
	depth = 4
	// maxFutile bounds workers that end, one after the other, without any answer
	// in between: a worker that cannot work is an error, not a loop.
	maxFutile = 20
)

// worker is one process of the pool.
type worker struct {
	slot  int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	has   []int // records handed to it and not answered
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

// event is what a worker's reader tells the pool: an answer, or its end.
type event struct {
	from    *worker
	record  int
	content digest
	ended   bool
	how     string // with ended: the exit status in words
}

// pool keeps a fixed number of workers alive. All its state belongs to the
// goroutine that calls its methods; each worker has one more, which only reads
// its answers and sends them to events.
type pool struct {
	command  func() (*exec.Cmd, error)
	log      io.Writer
	workers  []*worker // by slot
	events   chan event
	closing  chan struct{}
	readers  sync.WaitGroup
	todo     []int // records to hand out
	replaced int   // workers that ended and were replaced
	futile   int
}

func newPool(n int, command func() (*exec.Cmd, error), log io.Writer) (*pool, error) {
	p := &pool{command: command, log: log, events: make(chan event), closing: make(chan struct{})}
	for slot := range n {
		w, err := p.start(slot)
		if err != nil {
			p.close()
			return nil, err
		}
		p.workers = append(p.workers, w)
	}
	return p, nil
}

func (p *pool) start(slot int) (*worker, error) {
	cmd, err := p.command()
	if err != nil {
		return nil, err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start a worker: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start a worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start a worker: %w", err)
	}
	w := &worker{slot: slot, cmd: cmd, stdin: stdin}
	p.readers.Go(func() { p.listen(w, stdout) })
	return w, nil
}

// listen turns the worker's lines into events. The end comes after the last
// answer, so what is then in has was not answered and never will be.
func (p *pool) listen(w *worker, stdout io.Reader) {
	send := func(e event) bool {
		select {
		case p.events <- e:
			return true
		case <-p.closing:
			return false
		}
	}
	in := bufio.NewReader(stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil { // a line cut short by SIGKILL is no answer
			break
		}
		record, content, err := parseAnswer(line)
		if err != nil {
			w.cmd.Process.Kill() // its end hands out its records again
			break
		}
		if !send(event{from: w, record: record, content: content}) {
			break
		}
	}
	w.cmd.Wait()
	send(event{from: w, ended: true, how: w.cmd.ProcessState.String()})
}

// parseAnswer reads "NUMBER DIGEST\n", the digest as 64 hexadecimal digits.
func parseAnswer(line string) (record int, content digest, err error) {
	number, digits, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if !ok || len(digits) != hex.EncodedLen(len(content)) {
		return 0, content, fmt.Errorf("not an answer: %q", line)
	}
	if record, err = strconv.Atoi(number); err != nil {
		return 0, content, fmt.Errorf("not an answer: %q", line)
	}
	if _, err = hex.Decode(content[:], []byte(digits)); err != nil {
		return 0, content, fmt.Errorf("not an answer: %q", line)
	}
	return record, content, nil
}

// read has the workers read the records, which are distinct, and returns the
// digests in the same order.
func (p *pool) read(records []int) ([]digest, error) {
	place := make(map[int]int, len(records))
	for i, record := range records {
		place[record] = i
	}
	contents := make([]digest, len(records))
	p.todo = slices.Clone(records)
	for len(place) > 0 {
		p.handOut()
		e := <-p.events
		if e.ended {
			if err := p.ended(e); err != nil {
				return nil, err
			}
			continue
		}
		had := slices.Index(e.from.has, e.record)
		i, wanted := place[e.record]
		if had < 0 || !wanted {
			return nil, fmt.Errorf("worker %d answered record %d, which it was not asked for", e.from.pid(), e.record)
		}
		e.from.has = slices.Delete(e.from.has, had, had+1)
		delete(place, e.record)
		contents[i] = e.content
		p.futile = 0
	}
	return contents, nil
}

// handOut gives each worker up to depth records, one in turn.
func (p *pool) handOut() {
	for n := range depth {
		for _, w := range p.workers {
			if len(p.todo) == 0 {
				return
			}
			if len(w.has) > n {
				continue
			}
			record := p.todo[0]
			p.todo = p.todo[1:]
			w.has = append(w.has, record)
			// A worker that is gone refuses it; its end hands it out again. A few
			// short lines never fill the pipe.
			fmt.Fprintln(w.stdin, record)
		}
	}
}

// ended starts another worker in the place of one that ended, and puts what it
// left unanswered in front of what is to be handed out.
func (p *pool) ended(e event) error {
	w := e.from
	w.stdin.Close()
	p.futile++
	if p.futile > maxFutile {
		return errors.New("workers end without answering, the last with " + e.how)
	}
	next, err := p.start(w.slot)
	if err != nil {
		return err
	}
	p.workers[w.slot] = next
	p.todo = append(slices.Clone(w.has), p.todo...)
	p.replaced++
	fmt.Fprintf(p.log, "lmdbload: worker %d ended (%s): replaced by %d, %d records handed out again\n",
		w.pid(), e.how, next.pid(), len(w.has))
	return nil
}

// wait lets d pass and replaces the workers that end meanwhile.
func (p *pool) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case e := <-p.events:
			if !e.ended {
				return fmt.Errorf("worker %d answered record %d between batches", e.from.pid(), e.record)
			}
			if err := p.ended(e); err != nil {
				return err
			}
		}
	}
}

// close ends the workers by closing their stdin, and waits for them.
func (p *pool) close() {
	close(p.closing)
	for _, w := range p.workers {
		w.stdin.Close()
	}
	p.readers.Wait()
}

// work reads the number of a record from each line of stdin and answers on
// stdout "NUMBER DIGEST". It ends with status 0 at the end of stdin, so when the
// parent is gone, and after SIGTERM once the record it is at is answered.
func work(path string, stdin io.Reader, stdout, stderr io.Writer) int {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	env, err := openRead(path)
	if err != nil {
		fmt.Fprintf(stderr, "lmdbload worker: %v\n", err)
		return 1
	}
	// Reading may block for ever: it has a goroutine of its own, which ends with
	// the process.
	requests := make(chan string)
	go func() {
		defer close(requests)
		for lines := bufio.NewScanner(stdin); lines.Scan(); {
			requests <- lines.Text()
		}
	}()
	for {
		// Where both are ready select picks either: the signal goes first.
		select {
		case <-term:
			return 0
		default:
		}
		select {
		case <-term:
			return 0
		case request, ok := <-requests:
			if !ok {
				return 0
			}
			record, err := strconv.Atoi(request)
			if err == nil {
				err = view(env, key(record), func(value []byte) error {
					_, err := fmt.Fprintf(stdout, "%d %x\n", record, sha256.Sum256(value))
					return err
				})
			}
			if err != nil {
				fmt.Fprintf(stderr, "lmdbload worker: %v\n", err)
				return 1
			}
		}
	}
}

// workerCommand returns what makes the command of one more worker over the LMDB
// at path: this program again, known to others as "lmdbload worker PATH".
func workerCommand(path string, stderr io.Writer) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("cannot find lmdbload itself: %w", err)
		}
		cmd := exec.Command(self)
		cmd.Args = []string{"lmdbload", "worker", path}
		cmd.Stderr = stderr
		return cmd, nil
	}
}
