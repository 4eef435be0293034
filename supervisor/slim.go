package supervisor

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// slimAfter is how long after its start the watcher gives back what only its
// start has needed.
const slimAfter = 10 * time.Second

// slim has the kernel unmap the pages of our own program that were touched so
// far. Most were for the start alone, or came with their neighbours (fault-around
// maps 64 KiB at a time), and Slurm counts them as the job's. What is still
// needed comes back from the page cache. Only mappings without a single page of
// our own are taken: what the dynamic linker has written must stay.
func (w *watcher) slim() {
	if w.slimmed || w.Attached != nil || w.now() < slimAfter {
		return
	}
	w.slimmed = true
	go func() { _ = dropClean("/proc/self/smaps", "/proc/self/exe") }()
}

// dropClean drops the read-only mappings of a file that are clean.
func dropClean(smaps, exe string) error {
	path, err := os.Readlink(exe)
	if err != nil {
		return err
	}
	f, err := os.Open(smaps)
	if err != nil {
		return err
	}
	defer f.Close()
	var from, to uintptr // of the mapping that is being read, 0 for none of those
	clean := false
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := sc.Text()
		if a, b, perms, ok := mappingLine(line); ok {
			from, to, clean = 0, 0, true
			if (perms == "r-xp" || perms == "r--p") && strings.HasSuffix(line, " "+path) {
				from, to = a, b
			}
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Private_Dirty", "Shared_Dirty", "Anonymous":
			clean = clean && strings.TrimSpace(value) == "0 kB"
		case "VmFlags": // the last line of each
			if from != 0 && clean {
				_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
			}
		}
	}
	return nil
}

func mappingLine(line string) (from, to uintptr, perms string, ok bool) {
	n, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perms)
	return from, to, perms, err == nil && n == 3
}
