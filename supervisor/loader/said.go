package loader

import (
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

// What the hooks have said of the processes that they are in, all in all.
type (
	Trainer  = event.Trainer
	Loader   = event.DataLoader
	Unforked = event.Unforked
)
