// Package loader speaks with the PyTorch data loaders of a job through small
// files in a run directory.
//
// The holder calls [Prepare] before it starts the command: it makes a directory
// that only this user can enter, on a file system of this node, and gives the
// command RSSWARDEN_DIR and a PYTHONPATH that begins with the hook (package
// hook). Any failure there leaves the environment as it was. The watcher opens
// the directory with [Open] and asks the loaders to trim, to keep to a budget,
// to collect garbage or to replace a worker.
//
// The promise to the job: a Python process that finds anything unexpected does
// nothing; no thread, socket or signal is added to it; without a request the
// batches, their order and every random draw are as without us. A trainer
// answers when it next takes a batch, which may be long after: deadlines are
// the caller's.
//
// # Private mappings
//
// A trim drops the pages of read-only shared mappings of files: they are in the
// page cache, and the next read maps them again. pyarrow, and so Hugging Face
// datasets, map their files MAP_PRIVATE instead. A page of such a mapping is
// the page cache's until it is written; then it is anonymous and exists nowhere
// else. With --trim-private ([Control.SetPrivate]) a private mapping is dropped
// as well, where all of this holds at the moment of the drop:
//
//   - it is r--p in /proc/self/maps, and 64 MiB or larger;
//   - the file is still there under its name, regular, and no ELF object;
//   - /proc/self/smaps counts neither Anonymous nor Swap nor Private_Dirty in it,
//     and its VmFlags do not say that it was ever writable (ac), is locked (lo)
//     or special.
//
// Reading smaps, finding the mapping's own line and dropping the pages are calls
// without a line of Python between, which keep the interpreter's lock. A thread
// without that lock (of a C library, or within mmap.close(), which lets go of it
// around munmap(2) from Python 3.11 on) has the microseconds between the
// kernel's answer and the drop, or what dropping the mappings before takes. To
// lose anything it would have to make the mapping writable and write to it, or
// unmap it and get the same addresses for its own memory, in just that time.
// Shared mappings are looked up in /proc/self/maps in the same way, few at a
// time. Afterwards smaps is read again: a page of the process's own in a mapping
// that had none ends this for the process, and that is reported. Refused as well
// are files on tmpfs and files with pages not yet written back, whose clean
// copies count as dirty.
//
// # Iterable datasets
//
// Their place in the data lives in the workers, so those of a persistent loader
// are replaced at its next epoch, all at once. [Control.Recycle] is answered
// with accepted and [event.ReasonDeferred]. It is refused where no epoch begins
// again (no persistent_workers, wrappers that keep one iterator for life) and
// where the dataset visibly keeps something between epochs that a fresh worker
// would lack: it is its own iterator, or its __iter__ sets attributes. What it
// keeps in other objects cannot be seen.
//
// # StatefulDataLoader
//
// Workers of torchdata's StatefulDataLoader are replaced in the middle of an
// epoch, those of iterable datasets too. The trainer keeps the state of each
// worker after the last batch that the program got; a replacement starts from
// it, as torchdata resumes from a checkpoint. Tasks of that worker wait
// meanwhile. A state_dict of the loader resumes exactly, whenever it was taken.
// Where the replacement does not come up, or has another state than it was
// given, the worker goes on. Refused are a worker at the end of its data, an
// iterable dataset without state_dict and load_state_dict, one that is or holds
// a dataset of Hugging Face's (its state leaves out the shuffle buffer),
// snapshot_every_n_steps=0, and a torchdata whose text is not understood.
// Whether the dataset's state is complete cannot be seen.
//
// # Many small tensors
//
// Workers that are spawned or come from a fork server get the data set pickled,
// and torch.multiprocessing moves each tensor in it to shared memory of its own:
// a mapping each, and with the strategy file_descriptor a descriptor each, in
// the trainer and in every worker. A list of 80,000 meets vm.max_map_count or
// RLIMIT_NOFILE; a fork server takes 253 descriptors at once. Before that begins
// the hook looks for tensors in the data set, for 50 ms (0.3 s where it finds
// tens of thousands), without running a line of the program's own, and reports
// with [event.LoaderPickling] how many there are, where that is half of a limit
// or more. With [Control.SetNoFile] it also raises the soft RLIMIT_NOFILE of the
// process that pickles, which spawned workers inherit ([event.LoaderRaised]).
//
// Not seen are tensors deeper than three containers below a torch Dataset, those
// of classes derived from Tensor, and those in objects with a __getstate__ or
// __reduce__ of their own; sparse tensors are not counted. Tensors is the least
// there are then, and More says so.
//
// # What was run
//
// Recycling is claimed for what TestMatrix runs, and nothing else: on PyTorch
// 1.13 with Python 3.11 (Debian 12), 2.6 with 3.13 (Debian 13) and 2.14 with 3.14
// (Debian sid); swap and drain each; no record lost, doubled, wrong or out of
// place; each replaced worker ended with status 0. A torch whose text, as far as
// recycling rests on it, is that of one of these is taken for it, whatever its
// version. With any other nothing is recycled before a trial went well, and never
// with one whose text is not understood; iter says which, trimming goes on.
//
//   - iterators: persistent workers, a new iterator an epoch, one endless
//     iterator; with one worker (always swap) and with several; epochs left early
//   - start methods: fork, spawn, forkserver; a fork server that imports torch first
//     (TestPreloadedForkServer)
//   - tensors shared by file descriptors and by files (file_system)
//   - a pin thread, emulated: no CUDA was there; the thread and its queue are real
//   - two loaders at once; a loader inside the loop over another; a loader inside
//     the dataset; all of it inside a forked or spawned child of multiprocessing
//   - samplers: random, sequential, weighted, a batch sampler, one that never
//     ends, DistributedSampler with set_epoch (two replicas, without a process group)
//   - datasets over mmap, numpy.memmap, LMDB, plain files and h5py (2.6 alone),
//     the last two also read in the trainer between epochs; one that raises
//   - in_order=False (2.6): the same records in any order, always swap
//   - StatefulDataLoader: TestStateful, in CI with a stand-in of the same structure, and
//     with torchdata 0.11.0 and 0.12.0a0 where TORCHDATA names a checkout
//
// Not run: CUDA, InfiniBand hardware, torch 2.0 to 2.5 and 2.7 to 2.13, Python
// 3.12 under torch. On a free-threaded Python the hook says [event.LoaderOff] and
// does nothing: that no mapping changes before its drop rests on the
// interpreter's lock (TestFreeThreaded has another Python say that it is one). A
// trainer that has a file below /dev/infiniband/ open is never forked: memory
// registered with the adapter need not survive a fork. That is refused with
// [event.ReasonForkRefused]; spawn and forkserver are served.
//
// # When a worker ends
//
// A replaced worker ends by itself, with status 0, once the program has got every
// batch it made: what it keeps for a batch, such as shared memory or temporary
// files, is there until the program asks for the batch after it. One that does
// not end when told, such as for a thread of its own, is terminated after 5 s, as
// torch does it, and killed after 10 s; that is reported.
//
// A replacement is given work, and watched by torch, once it has read its index
// queue. One that dies before, takes longer than 120 s, or whose worker_init_fn
// raises (the traceback goes to stderr) is done without: with swap the old worker
// stays, with drain its place stays empty, and no more workers of that iterator
// are replaced. A trainer whose persistent workers' epoch ends meanwhile waits for
// it that long. With spawn and forkserver the trainer writes the pickled dataset
// into a pipe to the new process, which reads it once it has imported the
// program's main module: a dataset larger than the pipe (64 KiB) stops the trainer
// for that long, seconds with torch, at each replacement (paused_s). Files that a
// forked replacement inherits open for reading alone get an offset of their own;
// those open for writing too share theirs with the trainer, as in the workers
// before it.
//
// # Files
//
//	identity             who made the directory; boot id and PID namespace it is good for
//	settings             what holds for every process (JSON, renamed into place)
//	hello.PID.START      a process with torch is there (JSON, renamed into place)
//	ctl.PID.START        what we want of that trainer and its workers (JSON, renamed into place)
//	log.PID.START        what it and its workers report (a JSON object a line, each one write)
//	untried.KEY          a torch whose text is not known, and what a trial needs (JSON, renamed into place)
//	torch.KEY            what came of the trial: ok, or why not
//	ready.PID.TIME       a replacement has come up; gone at once
//
// KEY names the text of torch's files and Python's minor version. TIME is in ns on the monotonic
// clock. START is the start time in clock ticks since boot, field 22 of /proc/PID/stat.
package loader
