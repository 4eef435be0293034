//go:build rsswarden_faults

package supervisor

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// faultPoint fails where a test asked for it by RSSWARDEN_FAULT=FAULT, or by
// RSSWARDEN_FAULT=FAULT-while:FILE for as long as that file is there: "panic", or
// "bus" for a real SIGBUS, which one from kill(2) is not. It is built into programs
// made with -tags rsswarden_faults alone, so that tests can see what a bug in the
// watcher does to the command: nothing.
func faultPoint() {
	fault, file, conditional := strings.Cut(os.Getenv("RSSWARDEN_FAULT"), "-while:")
	if conditional {
		if _, err := os.Stat(file); err != nil {
			return
		}
	}
	switch fault {
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
