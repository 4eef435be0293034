package record

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// The index of a node lists its runs, a line of JSON at the start and one at the end of each, so
// that short runs and those that were killed with all of ours are listed too. It lies beside the journals, perhaps on a network file system: a line is appended by
// one write, and nothing is locked.
const (
	indexPrefix = "index-"
	indexOld    = ".1" // the part before the present one
	indexSuffix = ".jsonl"
	// mostIndexLine bounds a line in bytes, its newline included. Linux appends as much to a
	// local file at once.
	mostIndexLine = 500
	// mostIndex bounds the index: at that size it becomes the old part, and the old part
	// before it is removed. Two parts hold some 12,000 runs.
	mostIndex = 4 << 20
	// mostRuns bounds the runs of all indexes that are read at once: a gigabyte with their journals.
	mostRuns = 500_000
	// mostSeconds and mostPeak are more than any run's: a line may be anybody's, and is summed up.
	mostSeconds, mostPeak = 10 * 365 * 86400, 1e9
	// MostListed is how many columns of a command an entry keeps.
	MostListed = 160
)

// IndexEntry is what the list of runs shows of one run. It is also part of report --json.
type IndexEntry struct {
	V       int              `json:"v"`
	ID      string           `json:"id"` // of the run, see [Meta]
	Short   string           `json:"short,omitempty"`
	Start   time.Time        `json:"start"`
	Job     string           `json:"job,omitempty"`
	Array   string           `json:"array,omitempty"`   // "46_3" where the job is a task of an array
	Restart int              `json:"restart,omitempty"` // SLURM_RESTART_COUNT
	Outcome event.RunOutcome `json:"outcome"`
	Exit    *int             `json:"exit,omitempty"`   // as a shell has it: 128 + N after signal N
	Signal  string           `json:"signal,omitempty"` // that ended it, "SIGKILL"
	Seconds float64          `json:"seconds"`          // how long it ran
	// Limit is the limit that came nearest, Peak the highest share of it, Size its bytes.
	Limit event.LimitName `json:"limit,omitempty"`
	Peak  float64         `json:"peak,omitempty"`
	Size  rss.Bytes       `json:"limit_bytes,omitempty"`
	User  string          `json:"user,omitempty"`
	Node  string          `json:"node,omitempty"`
	// Command is the command line for people, cut where it is long.
	Command string `json:"command,omitempty"`
	IndexSums
	// Watcher is whose life says that the run still goes on, by the line of its start: the
	// holder, or who attached.
	Watcher Watcher `json:"watcher,omitzero"`
}

// IndexSums are what the sums over many runs need of one, zero where it was not seen. A run
// that is not the leader of its node has none.
type IndexSums struct {
	// Requested is the limit in bytes by which Slurm or the kernel ends the job, and Used the
	// most that was compared with it. They are there where Limit is another: see [IndexEntry.Memory].
	Requested rss.Bytes `json:"requested_bytes,omitempty"`
	Used      rss.Bytes `json:"used_bytes,omitempty"`
	// Enough is what was advised to ask for, where that is less than Requested.
	Enough   rss.Bytes     `json:"enough_bytes,omitempty"`
	Grew     event.Finding `json:"grew,omitempty"` // what grew most
	Trims    int           `json:"trims,omitempty"`
	Recycled int           `json:"recycled,omitempty"` // workers
}

// Watcher is a process on one boot of a node.
type Watcher struct {
	rss.ProcID
	BootID string `json:"boot_id"`
}

// SetEnd notes how the command ended and the limit on memory that came nearest, each nil
// where it is not known.
func (e *IndexEntry) SetEnd(code *int, signal *string, peak *event.Limit) {
	if e.Exit = code; signal != nil {
		e.Signal = *signal
		if n := unix.SignalNum(*signal); n > 0 {
			code := 128 + int(n)
			e.Exit = &code
		}
	}
	if peak != nil && peak.Limit > 0 {
		e.Limit, e.Size, e.Peak = peak.Name, peak.Limit, math.Round(peak.Ratio()*1e4)/1e4
	}
}

// Memory is the limit in bytes by which Slurm or the kernel ends the job, and the most that was
// compared with it; zero where none was seen. A --limit is not asked of Slurm.
func (e *IndexEntry) Memory() (requested, used rss.Bytes) {
	switch {
	case e.Requested > 0:
		return e.Requested, e.Used
	case e.Limit == event.LimitCgroup, e.Limit == event.LimitSlurm:
		return e.Size, e.Size.Scale(e.Peak)
	}
	return 0, 0
}

// line is the entry as it is written, at most mostIndexLine bytes. What does not fit is cut:
// the command, then names.
func (e IndexEntry) line() []byte {
	e.V, e.Short = Version, ""
	for _, s := range []*string{nil, &e.Command, &e.User, &e.Node, &e.Job} {
		for cut := 1; ; cut *= 2 {
			b, err := json.Marshal(e)
			if err != nil {
				return nil // a peak that is no number
			}
			b = append(text.JSON(b), '\n')
			over := len(b) - mostIndexLine
			if over <= 0 {
				return b
			}
			if s == nil || *s == "" {
				break
			}
			*s = cutBytes(*s, len(*s)-max(cut, min(over, len(*s)/2)))
		}
	}
	return nil
}

// cutBytes is the beginning of a text of at most so many bytes, with a sign that it was cut.
func cutBytes(s string, most int) string {
	const sign = "…"
	s = strings.TrimSuffix(s, sign)
	if most -= len(sign); most <= 0 {
		return ""
	}
	for most < len(s) && most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:min(most, len(s))] + sign
}

func indexName(node string) string { return indexPrefix + cleanID(node) + indexSuffix }

// AppendIndex adds a run to the index of its node, in the first place that takes it. It may
// hang where the file system does.
func AppendIndex(p Places, e IndexEntry) error {
	line := e.line()
	if line == nil {
		return fmt.Errorf("cannot list run %s: its line is too long", e.ID)
	}
	f, err := openInFirst(append(p.Journals[:len(p.Journals):len(p.Journals)], p.Records...), indexName(e.Node))
	if err != nil {
		return fmt.Errorf("cannot make the index of runs: %w", err)
	}
	defer f.Close()
	fault.Point("index")
	if _, err := f.Write(line); err != nil {
		return fmt.Errorf("cannot list the run in %s: %w", f.Name(), nodedir.WithoutPath(err))
	}
	turnIndex(f)
	return nil
}

// turnIndex makes an index that is full its old part. What others append meanwhile goes to
// one of the two.
func turnIndex(f *os.File) {
	var st, there unix.Stat_t
	path := f.Name()
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Size < mostIndex {
		return
	}
	if unix.Lstat(path, &there) != nil || there.Ino != st.Ino || there.Dev != st.Dev {
		return // another run has done it
	}
	_ = os.Rename(path, strings.TrimSuffix(path, indexSuffix)+indexOld+indexSuffix)
}

func ParseIndexEntry(line []byte) (IndexEntry, error) {
	var e IndexEntry
	if len(line) > 4*mostIndexLine { // of a later version
		return e, ErrForeign
	}
	// A run that was killed as it wrote, or a full disk, leaves half a line before this one.
	if i := bytes.LastIndex(line, []byte(`{"v":`)); i > 0 {
		line = line[i:]
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return e, ErrForeign
	}
	switch {
	case e.V > Version:
		return e, ErrNewer
	case e.V < 1 || !IsID(e.ID) || e.Start.IsZero() || e.Outcome == "" || !(e.Seconds >= 0 && e.Seconds <= mostSeconds) || !(e.Peak >= 0 && e.Peak <= mostPeak):
		return e, ErrForeign
	}
	e.Short = ""
	return e, nil
}

// Index is what the indexes of some directories list.
type Index struct {
	Entries []IndexEntry // in no order, each run once: its end where that is known
	// Damage says what could not be read, and Err why a whole file could not.
	Damage []string
	Err    error
}

// ReadIndex reads the indexes of all nodes in directories.
func ReadIndex(dirs ...string) Index {
	var x Index
	seen := map[ownedRun]int{}
	var errs []error
	for _, dir := range dirs {
		entries, err := ReadDir(dir)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, nodedir.ErrLink) {
			errs = append(errs, fmt.Errorf("cannot read runs in %s: %w", dir, nodedir.WithoutPath(err)))
		}
		for _, e := range entries {
			name := e.Name()
			if !strings.HasPrefix(name, indexPrefix) || !strings.HasSuffix(name, indexSuffix) {
				continue
			}
			path := filepath.Join(dir, name)
			if err := x.read(path, seen); err != nil {
				errs = append(errs, fmt.Errorf("cannot read the index %s: %w", path, Reason(err)))
			}
		}
	}
	x.Err = errors.Join(errs...)
	return x
}

// ownedRun is a run by who wrote of it: a user's index hides no run of another's.
type ownedRun struct {
	uid uint32
	id  string
}

// read adds the runs of one index. seen is where each stands in the entries.
func (x *Index) read(path string, seen map[ownedRun]int) error {
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	damaged, newer, over := 0, 0, 0
	in := bufio.NewReaderSize(io.LimitReader(f, 2*mostIndex), 64<<10)
	for {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) > 0 {
			e, bad := ParseIndexEntry(line)
			run := ownedRun{st.Uid, e.ID}
			at, again := seen[run]
			switch {
			case bad == nil && !again && len(x.Entries) >= mostRuns:
				over++
			case bad == nil && !again:
				seen[run] = len(x.Entries)
				x.Entries = append(x.Entries, e)
			case bad == nil && x.Entries[at].Outcome == event.RunRunning:
				x.Entries[at] = e
			case errors.Is(bad, ErrNewer):
				newer++
			case bad != nil && err == nil: // the last may be half-written
				damaged++
			}
		}
		if err != nil {
			break
		}
	}
	if damaged > 0 {
		x.Damage = append(x.Damage, fmt.Sprintf("%s of %s damaged, left out", text.Count(damaged, "line"), path))
	}
	if over > 0 {
		x.Damage = append(x.Damage, fmt.Sprintf("%s of %s left out: there are more than %s runs", text.Count(over, "line"), path, text.Digits(mostRuns)))
	}
	if newer > 0 {
		x.Damage = append(x.Damage, fmt.Sprintf("%s of %s by a newer rsswarden, left out", text.Count(newer, "line"), path))
	}
	return nil
}

// Label is a short name of a run, derived from its ID: eight letters and digits, of which the
// first four are told apart by people. The fourth is a letter, so none is like a job's number.
func Label(id string) string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz" // Crockford's base 32
	sum := sha256.Sum256([]byte(id))
	var b [labelLength]byte
	for i := range b {
		b[i] = digits[sum[i]%32]
	}
	b[shortLength-1] = digits[10:][sum[shortLength-1]%22]
	return string(b[:])
}

const (
	labelLength = 8
	shortLength = 4
)

// Shorten gives each entry the shortest beginning of its [Label] that no other has, of four
// letters or more.
func Shorten(entries []IndexEntry) {
	labels := make([]string, len(entries))
	for i := range entries {
		labels[i] = Label(entries[i].ID)
	}
	for n, left := shortLength, len(entries); left > 0 && n <= labelLength; n++ {
		same := make(map[string]int, len(entries))
		for _, l := range labels {
			same[l[:n]]++
		}
		for i, l := range labels {
			if e := &entries[i]; e.Short == "" && (same[l[:n]] == 1 || n == labelLength) {
				e.Short = l[:n]
				left--
			}
		}
	}
}

// IsShort says whether a word can be the short name of a run.
func IsShort(s string) bool {
	return len(s) >= shortLength && len(s) <= labelLength && strings.Trim(s, "0123456789abcdefghjkmnpqrstvwxyz") == "" &&
		s[shortLength-1] >= 'a'
}

// EntryOfID is what the ID of a run says: when it began, where, and of which job. It has no
// outcome.
func EntryOfID(id string) IndexEntry {
	e := IndexEntry{V: Version, ID: id, Job: jobOfID(id)}
	if parts := strings.SplitN(id, "-", 4); len(parts) == 4 {
		e.Start, _ = time.Parse(idTime, parts[0])
		e.Node = parts[2]
	}
	return e
}
