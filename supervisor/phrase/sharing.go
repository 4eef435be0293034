package phrase

import (
	"fmt"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Sharing says what is about to happen, and what to write instead.
func Sharing(pid int, s *event.Sharing) string {
	more := ""
	if s.More {
		more = " or more"
	}
	line := fmt.Sprintf("a DataLoader in process %d sends %s%s tensors to workers started by %s, each by itself in shared memory (sharing strategy %s)",
		pid, text.Digits(uint64(s.Tensors)), more, s.Method, s.Strategy)
	for _, need := range sharingNeeds(s) {
		line += "; " + need
	}
	return line + `: set_start_method("fork") before CUDA is used, or multiprocessing_context="fork" of the DataLoader, or one large tensor or numpy array in the place of the list`
}

// sharingNeeds tells of each limit that is ahead how much of it will be needed.
func sharingNeeds(s *event.Sharing) (needs []string) {
	more := ""
	if s.More {
		more = "at least "
	}
	if s.MaxMaps > 0 && 2*s.Maps >= s.MaxMaps {
		needs = append(needs, fmt.Sprintf("that takes %s%s memory mappings of the %s that vm.max_map_count allows", more, text.Digits(uint64(s.Maps)), text.Digits(uint64(s.MaxMaps))))
	}
	if s.MaxFDs > 0 && 2*s.FDs >= s.MaxFDs {
		line := fmt.Sprintf("that takes %s%s descriptors of the %s that ulimit -n allows", more, text.Digits(uint64(s.FDs)), text.Digits(uint64(s.MaxFDs)))
		if s.FDs > s.MaxFDs && s.HardFDs >= s.FDs {
			line += fmt.Sprintf(" (--nofile %d raises that)", s.FDs)
		}
		needs = append(needs, line)
	}
	if s.MaxSent > 0 && 2*s.Sent >= s.MaxSent {
		needs = append(needs, fmt.Sprintf("that sends %s%s descriptors to the fork server at once, which takes %s", more, text.Digits(uint64(s.Sent)), text.Digits(uint64(s.MaxSent))))
	}
	return needs
}
