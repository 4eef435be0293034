package hold

import (
	"os"
	"runtime"
	"strconv"
	"sync"
)

// How many idle threads the runtime is given at the start. One that it cannot make
// later, with pids.max reached, is the end of the process.
const (
	// holderThreads: with GOMAXPROCS 2 it has no use for more.
	holderThreads = 6
	// watcherThreads has one for each goroutine that may be in a system call while
	// the others are: the link and the stalls at all times, the loop, stderr, events,
	// record, its flush, textfile, an alert's start, and what is read on the side. On
	// a machine under load each of them stays there for milliseconds.
	watcherThreads = 10
)

// makeThreads has the runtime create n threads and leaves them to it: each
// locked goroutine needs one of its own until all are there.
func makeThreads(n int) {
	var ready, end sync.WaitGroup
	release := make(chan struct{})
	for range n {
		ready.Add(1)
		end.Add(1)
		go func() {
			runtime.LockOSThread()
			ready.Done()
			<-release
			runtime.UnlockOSThread()
			end.Done()
		}()
	}
	ready.Wait()
	close(release)
	end.Wait()
}

// threads are the watcher's that have been told to block their signals. The
// runtime makes one now and then, with many signals open; until it is told,
// the handler puts back what it gets.
type threads struct{ told map[int]bool }

func (t *threads) mask() {
	names, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	told := make(map[int]bool, len(names))
	for _, n := range names {
		tid, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		if !t.told[tid] {
			maskThread(tid)
		}
		told[tid] = true
	}
	t.told = told
}
