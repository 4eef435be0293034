package trim

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// Target is a process and what of it could be trimmed.
type Target struct {
	ID      rss.ProcID
	Refusal Refusal // why nothing, None otherwise
	Detail  string  // of Refusal, for people; may be empty
	// Mappings are those that may be trimmed, largest Resident first.
	Mappings []Mapping
}

// Plan looks at a process as [Check] does, and reads what of it could be
// trimmed. The error is set for Failed alone, and Detail is its text.
func Plan(o CheckOptions) (Target, error) {
	t := Target{ID: o.ID}
	if t.Refusal, t.Detail = Check(o); t.Refusal == None {
		found, err := mappings(o)
		if err == nil {
			t.Mappings = found
			return t, nil
		}
		t.Refusal, t.Detail = refusalOf(err), err.Error()
	}
	if t.Refusal == Failed {
		return t, errors.New(t.Detail)
	}
	return t, nil
}

func mappings(o CheckOptions) ([]Mapping, error) {
	f, err := os.Open(filepath.Join(o.Proc, strconv.Itoa(o.ID.PID), "smaps"))
	if err != nil {
		return nil, fmt.Errorf("cannot open smaps of process %d: %w", o.ID.PID, err)
	}
	defer f.Close()
	found, err := readSmaps(f)
	if err != nil {
		return nil, fmt.Errorf("cannot read smaps of process %d: %w", o.ID.PID, err)
	}
	slices.SortStableFunc(found, func(a, b Mapping) int { return cmp.Compare(b.Resident, a.Resident) })
	return found, sameProcess(o.Proc, o.ID)
}

// sameProcess says that the PID is still that process's.
func sameProcess(proc string, id rss.ProcID) error {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(id.PID), "stat"))
	if err != nil {
		return fmt.Errorf("cannot read stat of process %d: %w", id.PID, err)
	}
	st, ok := parseStat(b)
	switch {
	case !ok:
		return fmt.Errorf("cannot read stat of process %d: %w", id.PID, errMalformed)
	case st.start != id.Start:
		return fmt.Errorf("process %v has ended: %w", id, unix.ESRCH)
	}
	return nil
}
