package event

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Trainer is a process with torch that said hello.
type Trainer struct {
	ID     rss.ProcID
	Parent int
	Torch  string // version
	Python string
	// CanRecycle says that workers can be recycled with this torch, as far as is
	// known; Why says why not.
	CanRecycle bool
	Why        string
	// Trial says how that is known, once it has made an iterator with workers; Key
	// names the text of its torch then.
	Trial Trial
	Key   string
	// Off says that the hook switched itself off there, OffWhy why.
	Off    bool
	OffWhy string
	// Loaders are the iterators over a DataLoader that live, oldest first. A
	// process without any is not necessarily a trainer: torchrun says hello
	// too.
	Loaders []DataLoader
}

// Replaces says that a worker of one of its loaders can be replaced now.
func (t *Trainer) Replaces(l *DataLoader, worker int) bool {
	return (l.Pool || t.CanRecycle && !t.Off) && l.CanRecycle && !slices.Contains(l.Asked, worker)
}

// TakesBatches says that it has a DataLoader, at whose batches it looks at requests itself.
func (t *Trainer) TakesBatches() bool {
	return slices.ContainsFunc(t.Loaders, func(l DataLoader) bool { return !l.Pool })
}

// PoolOf names the class of the pool that a process is a worker of, empty for any other.
func PoolOf(all []Trainer, pid int) string {
	for i := range all {
		for j := range all[i].Loaders {
			if l := &all[i].Loaders[j]; l.Pool && (slices.Contains(l.Workers, pid) || slices.Contains(l.Leaving, pid)) {
				return l.Kind
			}
		}
	}
	return ""
}

// DataLoader is one iterator over a DataLoader, or a pool of worker processes.
type DataLoader struct {
	// Pool says that it is a pool: "multiprocessing.Pool" or the like, as Kind says. Its
	// workers end between two tasks, and it starts others itself.
	Pool       bool
	N          int    // counts the iterators of its process from 1
	Kind       string // "map" or "iterable"; with "stateful " before it for torchdata's StatefulDataLoader; of a pool its class
	Persistent bool   // persistent_workers
	NumWorkers int    // 0: the trainer loads for itself
	Start      string // how workers are started: "fork", "spawn", "forkserver"
	// Unforked is nil where workers are forked.
	Unforked *Unforked
	// CanRecycle says that a request to replace one of its workers makes sense;
	// Why says why not. Those of an iterable dataset are all replaced at its
	// next epoch, once one was asked for; until then no more is to be asked.
	CanRecycle bool
	Why        string
	Helper     int   // PID of the process that forks replacements in place of the trainer, else 0
	Workers    []int // PIDs by worker id
	Revives    bool  // another is started where one dies, by --revive
	Starting   int   // PID of a replacement that is not in use yet, else 0
	Leaving    []int // PIDs of workers that have been replaced and still live
	Asked      []int // PIDs of a pool's workers that are to end after their tasks
}

// Unforked is what is known of workers that were started by spawn or forkserver.
type Unforked struct {
	// By says who chose the method: "multiprocessing_context", "set_start_method",
	// "parent" (the trainer itself was started so) or "default" (Python's).
	By string
	// Took is how long the trainer stands still while one worker is started, as it was
	// when the last one was.
	Took time.Duration
	// Sent is what the trainer wrote while it started the workers, for each of them:
	// the pickled data set. Negative where it could not be read.
	Sent int64
	// CUDA says that the trainer had begun to use CUDA, Registered names the InfiniBand
	// device that it had open, if any.
	CUDA       bool
	Registered string
	// Own is the private memory that came to a worker between its import of torch and
	// its first batch, of each worker in place that has said so.
	Own []rss.Bytes
}
