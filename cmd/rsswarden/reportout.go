package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// toFile writes a file whole or not at all; an empty name is none.
func toFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	err := replaceFile(name, write)
	if err == nil {
		return nil
	}
	return &recordError{fmt.Errorf("cannot write %s: %w", name, plain(err)), "name a file in a directory that you may write to and that has room"}
}

func replaceFile(name string, write func(io.Writer) error) error {
	if at, err := filepath.EvalSymlinks(name); err == nil {
		name = at // what a link leads to is meant, not the link
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return unix.EISDIR
	case err == nil && !info.Mode().IsRegular():
		// A pipe or a device is there for others too, and must stay what it is.
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(buffered(f, write), f.Close())
	}
	part := filepath.Join(filepath.Dir(name), fmt.Sprintf(".rsswarden-%d", os.Getpid()))
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if err = buffered(f, write); err == nil && info != nil {
		err = f.Chmod(info.Mode().Perm())
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		os.Remove(part)
	}
	return err
}

// printed writes to standard output.
func printed(p process, write func(io.Writer) error) error {
	if err := buffered(p.stdout, write); err != nil {
		return &recordError{fmt.Errorf("cannot write to standard output: %w", err), "write it to a file elsewhere, or to one with more room"}
	}
	return nil
}

func buffered(to io.Writer, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(to, 64<<10)
	err := write(w)
	if e := w.Flush(); err == nil {
		err = e
	}
	return plain(err)
}

// columns is the width of a terminal, 80 elsewhere.
func columns(f *os.File) int {
	if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col >= 40 {
		return int(min(ws.Col, 160))
	}
	return 80
}

// colours says whether to colour: on a terminal, unless NO_COLOR is set
// (no-color.org).
func colours(p process) bool {
	_, err := unix.IoctlGetTermios(int(p.stdout.Fd()), unix.TCGETS)
	return err == nil && p.get("NO_COLOR") == "" && p.get("TERM") != "dumb"
}
