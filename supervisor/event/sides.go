package event

// sides tells of each limit that is none on summed memory what runs out, and what
// to change before it does, in the words of who documents it.
var sides = map[LimitName]struct{ thing, cure string }{
	LimitMaps: {"memory mappings",
		`each tensor that goes to a worker started by spawn or forkserver takes one: set_start_method("fork"), or one large tensor in the place of many; only root can raise vm.max_map_count`},
	LimitFDs: {"descriptors",
		`ulimit -n raises it up to the hard limit, --nofile where PyTorch needs it; or set_start_method("fork")`},
	LimitCommit: {"committed memory",
		"memory that is asked for counts before it is used, and a fork counts it again: lower num_workers, or leave more of the node to this job; only root can raise vm.overcommit_ratio or add swap"},
	LimitSHM: {"/dev/shm",
		"lower prefetch_factor, num_workers or the batch size; what is killed leaves its files behind there"},
	LimitTasks: {"tasks",
		"threads count: set OMP_NUM_THREADS, lower num_workers"},
	LimitAS: {"address space",
		"ulimit -v unlimited where the hard limit allows it: virtual size is not memory"},
	LimitMemlock: {"locked memory",
		"ulimit -l raises it up to the hard limit; pin_memory=False, or smaller communication buffers"},
}

// Thing is what there is none left of at such a limit: "memory mappings". It is
// empty for limits on summed memory.
func (n LimitName) Thing() string { return sides[n].thing }

// Cure is what to change before such a limit is met, empty as with Thing.
func (n LimitName) Cure() string { return sides[n].cure }
