// Package config reads options from a file in TOML: one `name = value` a line,
// named as the flags are, no tables.
//
// It knows what a file is and nothing of what the options mean: the caller says which keys
// there are and of what kind, and gets each value with its place, so that
// an error can be reported as FILE:LINE:COLUMN. Text is taken literally:
// nothing in a file is executed, expanded or included. Every problem of a file is reported,
// not only the first, and what is readable beside it is returned: a job must not be kept
// from running by a file that its user did not write.
package config

import "fmt"

// Kind is the kind of a key's value.
type Kind int

const (
	// Text is a string, or a whole number for which its digits are taken.
	Text Kind = iota
	// Truth is true or false.
	Truth
	// List is a list of strings, or one string for a list of one.
	List
)

// Key is one option that a file may set.
type Key struct {
	Name string
	Kind Kind
}

// LockKey names the keys whose values only the file decides: lock = ["trim-private"].
const LockKey = "lock"

// Place is a place in a file, both from 1. Columns count bytes.
// The zero value means the file as a whole.
type Place struct {
	Line, Col int
}

// Value is what a file says of a key. Values has one element unless the key is
// a List; of a Truth that is "true" or "false".
type Value struct {
	Values []string
	Place
}

// File is what was read.
type File struct {
	Path   string
	Values map[string]Value
	// Lock holds the keys that the file locks, each one that exists; a locked
	// key need not be set.
	Lock map[string]bool
}

// Problem is something wrong with a file.
type Problem struct {
	Path string
	Place
	Says string // "unknown key \"limt\""
	Hint string // what to do about it: "did you mean limit?"
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.Path, p.Says)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.Path, p.Line, p.Col, p.Says)
}

// Problem makes a problem of a value that the caller could not use.
func (f *File) Problem(key, says, hint string) *Problem {
	return &Problem{Path: f.Path, Place: f.Values[key].Place, Says: says, Hint: hint}
}
