package rsstest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

// eaterRole is the variable by which a test binary knows that it is an eater.
const eaterRole = "RSSTEST_EATER"

// mayEat says that [BeEater] was called: else each eater would run all tests again.
var mayEat bool

// BeEater turns the process into an eater if [StartEater] started it, and does
// not return then. Call it first in TestMain.
func BeEater() {
	if os.Getenv(eaterRole) == "" {
		mayEat = true
		return
	}
	in := bufio.NewScanner(os.Stdin)
	var held [][]byte
	for in.Scan() {
		var what, file string
		var size int
		fmt.Sscan(in.Text(), &what, &size, &file)
		var b []byte
		var err error
		switch what {
		case "anon":
			b, err = touched(size)
		case "file":
			err = fill(file, size)
		case "map":
			b, err = mapped(file, size)
		case "free":
			for _, b := range held {
				_ = syscall.Munmap(b)
			}
			held = nil
		case "maps":
			_, err = MapMany(size)
		case "fds":
			_, err = OpenMany(size)
		}
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		if b != nil {
			held = append(held, b)
		}
		fmt.Println("done", len(held))
	}
	os.Exit(0)
}

// touched maps memory outside of Go's heap, so that size is what it takes.
func touched(size int) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	for i := 0; i < size; i += os.Getpagesize() {
		b[i] = 1
	}
	return b, nil
}

// mapped maps a file shared and read-only, and touches all of it.
func mapped(name string, size int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
}

// fill writes a file and reads it back, so that its pages are in memory and,
// on a disk, clean.
func fill(name string, size int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for n := 0; n < size; n += len(chunk) {
		if _, err := f.Write(chunk); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		if _, err := f.Read(chunk); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

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

// Eater is a process that uses memory on request.
type Eater struct {
	*Child
	t testing.TB
}

// StartEater starts the test binary as an eater. It ends with the test. The
// package's TestMain must call [BeEater].
func StartEater(t testing.TB) *Eater {
	t.Helper()
	return StartEaterBy(t, nil)
}

// StartEaterBy is [StartEater] by a command, which is given the eater's path as its last
// argument, and with this more in the environment.
func StartEaterBy(t testing.TB, env []string, command ...string) *Eater {
	t.Helper()
	if !mayEat {
		t.Fatal("TestMain does not call rsstest.BeEater")
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append(command, own)
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(append(os.Environ(), env...), eaterRole+"=1")
	return &Eater{StartChild(t, c), t}
}

// Anon makes the eater touch this much of its own memory, and keep it. It
// reports false where the eater did not survive.
func (e *Eater) Anon(size rss.Bytes) bool { return e.do("anon %d", size) }

// Free makes the eater give back all that it keeps.
func (e *Eater) Free() bool { return e.do("free") }

// File makes the eater write a file of this size, sync it and read it.
func (e *Eater) File(size rss.Bytes, name string) bool { return e.do("file %d "+name, size) }

// Stall has the kernel tell of memory stalls until the test ends: a process writes and reads
// a file greater than what its cgroup may hold, again and again. The package's TestMain must
// call [BeEater].
func Stall(t testing.TB) {
	t.Helper()
	g := NewGroup(t, 16*rss.MiB)
	e := StartEater(t)
	g.Join(e.PID)
	name := filepath.Join(t.TempDir(), "file")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for e.File(64*rss.MiB, name) {
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// Map makes the eater map a file shared and read-only, and touch so much of it.
func (e *Eater) Map(size rss.Bytes, name string) bool { return e.do("map %d "+name, size) }

// Maps makes the eater have so many memory mappings more, of one page each.
func (e *Eater) Maps(n int) bool { return e.do("maps %d", n) }

// Descriptors makes the eater open so many descriptors more.
func (e *Eater) Descriptors(n int) bool { return e.do("fds %d", n) }

func (e *Eater) do(format string, args ...any) bool {
	e.t.Helper()
	if _, err := fmt.Fprintf(e.In, format+"\n", args...); err != nil {
		return false
	}
	s, err := e.Line()
	if err != nil {
		return false
	}
	if strings.HasPrefix(s, "error:") {
		e.t.Fatal(s)
	}
	return true
}
