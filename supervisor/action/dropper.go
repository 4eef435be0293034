package action

import "github.com/rsswarden/rsswarden/rss"

// Dropper finds the files that processes map and has the page cache forget
// them, one question at a time. Nothing in it blocks: what comes of a call is in
// a later [World], or never where a file system hangs.
type Dropper interface {
	// Find asks which files these processes map that are worth it: [World.Found].
	Find(ids []rss.ProcID)
	// Drop asks to drop one of them: [World.Dropped].
	Drop(File)
}

// File is a file that processes map.
type File struct {
	Path       string
	Dev, Inode uint64 // as their mappings show them
	Mappers    []rss.ProcID
}

// Found are the files of those that were asked about.
type Found struct{ Files []File }

// Dropped is what the page cache had of a file before and after.
type Dropped struct {
	Before, After rss.Bytes
	Measured      bool // false where the kernel does not tell
	Err           error
}
