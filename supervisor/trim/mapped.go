package trim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rsswarden/rsswarden/rss"
)

// Mapped returns the mappings of a process that [Plan] would look at, by
// /proc/PID/maps: without sizes, flags or a word on whether the process may be
// touched, and so without a walk through its page tables. It may hang, for as
// long as somebody else holds the mmap_lock of the process.
func Mapped(proc string, id rss.ProcID) ([]Mapping, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(id.PID), "maps"))
	if err != nil {
		return nil, fmt.Errorf("cannot open maps of process %d: %w", id.PID, err)
	}
	defer f.Close()
	var found []Mapping
	records := 0
	err = eachLine(f, 4<<10, func(line []byte) error {
		if records++; records > MaxMappings {
			return errCrowded
		}
		if h, ok := parseHeader(line); ok && h.trimmable() {
			found = append(found, h.m)
			found[len(found)-1].Path = pathOf(h.path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read maps of process %d: %w", id.PID, err)
	}
	return found, sameProcess(proc, id)
}

// trimmable says that a mapping may be trimmed as far as its first line tells.
func (h *header) trimmable() bool {
	return string(h.perms) == "r--s" && h.m.Inode != 0 && ofFile(h.path)
}

func pathOf(path []byte) string { return string(bytes.ReplaceAll(path, []byte(`\012`), []byte("\n"))) }
