package rsstest

import (
	"fmt"
	"syscall"
)

// MapMany makes n memory mappings of one page each in this process. Neighbours
// differ in protection, or the kernel would make one mapping of them. It
// returns how to give them up.
func MapMany(n int) (undo func(), err error) {
	var all [][]byte
	undo = func() {
		for _, b := range all {
			_ = syscall.Munmap(b)
		}
	}
	for i := range n {
		prot := syscall.PROT_READ
		if i%2 == 0 {
			prot |= syscall.PROT_WRITE
		}
		b, err := syscall.Mmap(-1, 0, syscall.Getpagesize(), prot, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			undo()
			return nil, fmt.Errorf("cannot map page %d of %d: %w", i, n, err)
		}
		all = append(all, b)
	}
	return undo, nil
}

// OpenMany opens n descriptors in this process. It returns how to close them.
func OpenMany(n int) (undo func(), err error) {
	var all []int
	undo = func() {
		for _, fd := range all {
			_ = syscall.Close(fd)
		}
	}
	for i := range n {
		fd, err := syscall.Open("/", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			undo()
			return nil, fmt.Errorf("cannot open descriptor %d of %d: %w", i, n, err)
		}
		all = append(all, fd)
	}
	return undo, nil
}

// Maps makes the eater have so many memory mappings more, of one page each.
func (e *Eater) Maps(n int) bool { return e.do("maps %d", n) }

// Descriptors makes the eater open so many descriptors more.
func (e *Eater) Descriptors(n int) bool { return e.do("fds %d", n) }
