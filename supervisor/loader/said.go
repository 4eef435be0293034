package loader

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Grown is what a worker says of itself after its 8th batch, and each time the number
// of its batches has doubled: what it needs and what it leaks can be told from it. It
// is the watcher's alone, and no event.
const Grown event.Loader = "grown"

// Private is what a worker that was not forked says of itself before its first batch:
// how much private memory it has, and how much of that it had before the data set
// came. It is the watcher's alone, and no event.
const Private event.Loader = "private"

// Said is one thing the hook reported. Of the embedded event, Head is left for
// the caller to fill, but for Time, which is the reporter's.
type Said struct {
	event.LoaderSaid

	// Request is the id that Trim, GC or Recycle returned, 0 where the report
	// answers none of them. A request about several processes is answered by
	// each of them.
	Request uint64
	// Last says that nothing more will come for this Request and process:
	// after trimmed, collected, recycled and refused.
	Last bool
	// Trainer owns the loader it is about.
	Trainer rss.ProcID
	// New is the PID of the replacement, with started, swapped and recycled.
	New int
	// Exit is the exit status of the worker that was replaced, with recycled;
	// negative for a signal, as Python has it.
	Exit int
	// Mode is the way the worker was replaced, with accepted and recycled.
	Mode event.Mode
	// Before and After are what the process had mapped from files and shared
	// memory (statm's share) with trimmed, its anonymous RSS (statm's resident
	// less share) with collected, and the RSS of the old and of the
	// new worker with recycled, both read when the old one was told to end.
	Before, After rss.Bytes
	// Count is how many trims one report of a budget stands for.
	Count int
	// Batches is how many batches the worker has made, with grown; Half and Own are the
	// anonymous RSS that came since its first, by half of them and by all.
	Batches   int
	Half, Own rss.Bytes
	// Old says that it was reported before this Control was opened: a watcher
	// that was started again reads all of it once more.
	Old bool
}

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
	Trial event.Trial
	Key   string
	// Off says that the hook switched itself off there, OffWhy why.
	Off    bool
	OffWhy string
	// Loaders are the iterators over a DataLoader that live, oldest first. A
	// process without any is not necessarily a trainer: torchrun says hello
	// too.
	Loaders []Loader
}

// Loader is one iterator over a DataLoader.
type Loader struct {
	N          int    // counts the iterators of its process from 1
	Kind       string // "map" or "iterable"; with "stateful " before it for torchdata's StatefulDataLoader
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
	Workers    []int // PIDs by worker id
	Starting   int   // PID of a replacement that is not in use yet, else 0
	Leaving    []int // PIDs of workers that have been replaced and still live
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
