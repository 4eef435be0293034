//go:build rsswarden_faults

package fault

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Point fails in the part of this name where a test asked for it by
// RSSWARDEN_FAULT=FAULT[-in:PART][-once:FILE]. With a file, the part fails once: where
// the file is there, which it removes.
// FAULT is "panic", or "bus" for a real SIGBUS, which one from kill(2) is not; PART is
// "watcher" where none is named.
func Point(part string) {
	how, once, only := strings.Cut(os.Getenv("RSSWARDEN_FAULT"), "-once:")
	how, in, named := strings.Cut(how, "-in:")
	if !named {
		in = "watcher"
	}
	if in != part || how == "" {
		return
	}
	if only && os.Remove(once) != nil {
		return
	}
	switch how {
	case "panic":
		panic("asked for by RSSWARDEN_FAULT")
	case "bus":
		touchNothing()
	}
}

// touchNothing reaches for a page that its file does not have.
func touchNothing() {
	fd, err := unix.MemfdCreate("empty", unix.MFD_CLOEXEC)
	if err != nil {
		panic(err)
	}
	page, err := unix.Mmap(fd, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	page[0]++
}
