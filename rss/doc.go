// Package rss holds the vocabulary of memory and its arithmetic: what a
// process, a tree and a cgroup use, in bytes.
//
// Four ways of adding memory up are in use, and they answer different
// questions. The sum of RSS counts a page once for every process that maps it;
// PSS divides a shared page among the processes that map it; NoShared (Slurm's
// word) leaves shared pages out altogether; a cgroup's charge counts each page
// once, page cache and tmpfs included, for the group that touched it first.
// Every number here says which it is.
//
// The unit is the byte, everywhere: kilobytes and pages become bytes in the
// parser that reads them. The package depends on the standard library only.
package rss
