package diagnosis

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
)

// This file holds what to write instead, in the words of PyTorch and Slurm.

// persistent says whether some loader keeps its workers; true where nobody knows.
func (s *State) persistent() bool {
	for _, l := range s.loaders {
		if l.Persistent {
			return true
		}
	}
	return len(s.loaders) == 0
}

// fewer is the advice to have fewer workers, with how many there are.
func (s *State) fewer(why string) string {
	if n := s.count(rss.RoleWorker); n > 1 {
		return fmt.Sprintf("num_workers below the %d there are: %s", n, why)
	}
	return "a lower num_workers: " + why
}

func (s *State) mappedAdvice(role rss.Role, private bool) []string {
	var out []string
	if !s.countsMapped() {
		out = append(out, fmt.Sprintf("the limit here counts %s memory: these pages alone do not end the job", s.accounting))
	}
	switch {
	case private:
		out = append(out, "trim does not reach what is mapped privately, as pyarrow does; recycle (90%:recycle) does")
	default:
		out = append(out, "trim (85%:trim) gives these pages back and loses nothing: they stay in the page cache")
	}
	if role == rss.RoleWorker && s.persistent() {
		out = append(out, "persistent_workers=False: workers that end with the epoch give their pages back")
	}
	if role == rss.RoleWorker {
		out = append(out, s.fewer("each counts the same pages again"))
	}
	if private {
		out = append(out, "open the file with pyarrow.OSFile or datasets with keep_in_memory=True where one copy of it fits")
	}
	if s.countsMapped() {
		out = append(out, "ask the site for JobAcctGatherParams=UsePss, or for limits by cgroup alone (ConstrainRAMSpace=yes without OverMemoryKill): both count a page once")
	}
	return out
}

func (s *State) copyAdvice() []string {
	method := s.method()
	out := []string{
		"hold the data set's samples in one numpy array or torch tensor, not in lists, tuples or dicts: each look at a Python object writes its reference count",
		"strings as one np.array of dtype S, or as bytes with an array of offsets",
		s.fewer("each makes its own copy"),
		"--mem for one copy more of the data set for each worker, where the program cannot change",
	}
	if method == "spawn" || method == "forkserver" {
		return out
	}
	return append(out, "recycle helps only until the next epoch touches the objects again")
}

func (s *State) workerAdvice() []string {
	out := []string{
		"look for what __getitem__ or collate_fn keeps: self.cache[i] = x, self.seen.append(x); bound a cache with functools.lru_cache(maxsize=N)",
		"recycle (90%:recycle) replaces the workers one by one and gives it back, with no batch lost",
	}
	if s.persistent() {
		out = append(out, "persistent_workers=False: workers that end with the epoch give it back")
	}
	return append(out, "if malloc_trim gives it back (90%:gc) it is fragmentation: MALLOC_ARENA_MAX=2")
}

func trainerAdvice() []string {
	return []string{
		"keep numbers, not graphs: losses.append(loss.item()), or loss.detach() where a tensor is needed",
		"look for lists of outputs or metrics that outlive the epoch: append x.clone() or x.cpu().numpy(), and clear them",
		"there is no worker to recycle: write a checkpoint in time (signal=USR1@rank0, requeue) and raise --mem",
	}
}

func (s *State) queueAdvice() []string {
	return []string{
		"prefetch_factor=1, where it is 2 or more: num_workers times prefetch_factor batches wait",
		s.fewer("each loads prefetch_factor batches ahead"),
		"a smaller batch_size, or samples as uint8 or float16 that the trainer converts",
		"recycle and trim give none of it back: it is in no worker's RSS",
	}
}

func pinAdvice() []string {
	return []string{
		"pin_memory=False in the DataLoader: page-locked buffers are kept for reuse and rounded up to powers of two",
		"a lower prefetch_factor and batch_size pin less",
		"tensors that were made with .pin_memory() are not given back while they are referred to: reuse one buffer and copy_ into it",
		"it counts in full in RSS and in the cgroup, and nothing can reclaim it: add it to --mem",
	}
}

func spawnAdvice(method string) []string {
	fork := `torch.multiprocessing.set_start_method("fork"), or DataLoader(multiprocessing_context="fork"), before CUDA is used: a forked worker is sent nothing`
	if method != "" {
		fork += fmt.Sprintf(" (it is %q now)", method)
	}
	return []string{
		"one tensor for the whole data set (torch.stack, or one flat tensor with offsets) or numpy arrays, not a list of tensors: each tensor costs a mapping or a descriptor",
		fork,
		"open the data in __init__ of the worker (worker_init_fn) and keep only paths in the data set",
		"ulimit -n up to its hard limit in the job script, or --nofile, for the file_descriptor strategy; vm.max_map_count is the administrator's",
	}
}
