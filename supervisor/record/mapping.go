package record

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// findMapping returns where this process has mapped a file, 0 where it has not
// or /proc/self/maps cannot be read.
func findMapping(path string) uintptr {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return 0
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if !strings.HasSuffix(sc.Text(), " "+real) {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(sc.Text(), "%x-%x", &from, &to); err == nil {
			return from
		}
	}
	return 0
}

// giveBack takes the pages of the record out of our own memory: they are in the
// page cache, and would count for the job.
func (s *store) giveBack() {
	if s.mapAt != 0 {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, s.mapAt, uintptr(s.size), unix.MADV_DONTNEED)
	}
}
