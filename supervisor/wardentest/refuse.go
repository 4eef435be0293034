package wardentest

import (
	_ "embed"
	"runtime"
	"testing"
)

// Refuses has system calls fail in the program that it executes, by seccomp. A rule is
// (number, errno), or (number, errno, index of an argument, its value); a number or value
// below 0 stands for those from -n on.
//
//go:embed testdata/refuse.py
var Refuses string

// Refusing is what starts a program under such rules.
func Refusing(t *testing.T, rules string) []string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the numbers of system calls are amd64's")
	}
	return []string{Python, "-c", Refuses, rules}
}
