package diagnosis

import (
	"path"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Look is what was read at one moment. Only At and Procs are needed. What was not
// read is left out, never given as 0.
type Look struct {
	At time.Duration // on a clock that only goes forward
	// Procs is the tree with its roles. A process without the role of a trainer,
	// a worker or an shm manager is not judged: see [Guess].
	Procs []rss.Proc
	// Limit is the size of the memory limit that binds and Accounting what it
	// counts; 0 and empty where none is known.
	Limit      rss.Bytes
	Accounting event.Accounting

	// What follows was read since the last look, by whatever plan.
	Parts   []Parts
	Files   []Files
	Shm     []Shm
	Counts  []Count
	Loaders []Loader // all that the hook has told, where it has
}

// Parts is one reading of /proc/PID/smaps_rollup, its At on the clock of Look.At.
type Parts struct {
	ID rss.ProcID
	rss.Parts
}

// Files is what a process has of the files it maps, as /proc/PID/smaps tells.
type Files struct {
	ID rss.ProcID
	At time.Duration
	rss.MappedFiles
}

// Shm is what one /dev/shm has, at one moment; one entry for each mount. Used
// alone is cheap and may come with each look.
type Shm struct {
	ID         rss.ProcID // a trainer that sees it
	At         time.Duration
	Used, Size rss.Bytes // statvfs(3)

	// Read says that segments were looked for: what processes of the tree hold
	// open or map, deleted or not, each counted once.
	Read     bool
	Torch    rss.Bytes // of segments named torch_*, in blocks
	Segments int       // how many those are
	Visible  int       // … and still have their names: the file_system strategy
	Trainer  rss.Bytes // of Torch, what a trainer holds
}

// Count is how many mappings and descriptors a process has, and may have; 0 for
// what is not known.
type Count struct {
	ID              rss.ProcID
	Maps, FDs       int
	MaxMaps, MaxFDs int
}

// Loader is what the hook reported about one DataLoader with workers.
type Loader struct {
	PID        int    // of the trainer
	Workers    int    // num_workers
	Method     string // "fork", "spawn" or "forkserver"; empty where not known
	Persistent bool   // persistent_workers

	// What follows is known of workers that are not forked.
	By     string      // who chose Method: "default", "parent", "set_start_method" or "multiprocessing_context"
	Python string      // the trainer's version
	Sent   int64       // bytes that the trainer wrote to start one worker, negative where not read
	Own    []rss.Bytes // private memory that came to each worker with the data set
	// CUDA says that the trainer uses it, Registered which InfiniBand device it has open.
	CUDA       bool
	Registered string
}

// Guess gives roles to processes where no process has one yet, as without the hook: workers
// are what torch names so since 2.5, else what Python has started of its own name; who
// started them is the trainer, or the first process of all. Procs is changed.
func Guess(procs []rss.Proc) {
	for i := range procs {
		if r := procs[i].Role; r == rss.RoleTrainer || r == rss.RoleWorker {
			return
		}
	}
	byPID := make(map[int]*rss.Proc, len(procs))
	for i := range procs {
		byPID[procs[i].ID.PID] = &procs[i]
	}
	some := false
	for i := range procs {
		p, up := &procs[i], byPID[procs[i].Parent]
		if up == nil || up.Role == rss.RoleWorker || !plain(p) || !plain(up) || !loads(p.Comm, up.Comm) {
			continue
		}
		p.Role, up.Role, some = rss.RoleWorker, rss.RoleTrainer, true
	}
	if len(procs) > 0 && !some && plain(&procs[0]) && isPython(procs[0].Comm) {
		procs[0].Role = rss.RoleTrainer
	}
}

func plain(p *rss.Proc) bool {
	return p.Role == rss.RoleOther || p.Role == "" || p.Role == rss.RoleTrainer
}

// loads says that a process of that name, started by one of the other, is a loader worker.
func loads(comm, parent string) bool {
	return strings.HasPrefix(comm, "pt_data_worker") || strings.HasPrefix(comm, "pt_multiproces") ||
		isPython(comm) && isPython(parent)
}

func isPython(comm string) bool { return strings.HasPrefix(comm, "python") }

// unnamed says that shared memory is no file of /dev/shm: what MAP_ANONYMOUS
// makes, which the kernel shows as /dev/zero. So does pinned memory of CUDA.
func unnamed(file string) bool {
	return strings.HasPrefix(file, "/dev/zero") || strings.HasPrefix(file, "/dev/nvidia") || strings.HasPrefix(file, "/SYSV")
}

// batch says that shared memory is a tensor that torch sent to another process.
func batch(file string) bool { return strings.HasPrefix(path.Base(file), "torch_") }
