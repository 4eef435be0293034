package supervisor

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// slimAfter is how long after its start the watcher gives back what only its
// start has needed.
const slimAfter = 10 * time.Second

// heapGrowth is the watcher's GOGC, in percent. Its heap has 1 MiB live for 64
// processes, and would grow to 4 MiB with the usual 100.
const heapGrowth = 50

// selfTrim has the kernel unmap the pages of our own program that were touched so
// far. Most were for the start alone, or came with their neighbours (fault-around
// maps 64 KiB at a time), and Slurm counts them as the job's. What is still
// needed comes back from the page cache.
type selfTrim struct{ done bool }

// at trims once, when the watcher has run for a while, or earlier near a limit.
func (s *selfTrim) at(now time.Duration, near bool) {
	if s.done || now < slimAfter && !near {
		return
	}
	s.done = true
	probe.Run(func() {
		debug.SetGCPercent(heapGrowth) // not before: a collection costs more than most commands' watchers ever allocate
		debug.FreeOSMemory()
		exe, err := os.Readlink("/proc/self/exe")
		if err == nil {
			drop(cleanRanges("/proc/self/smaps", func(file string) bool { return file == exe }))
		}
	})
}

// Slim makes the holder small once the command runs: the OOM killer chooses by what is
// resident, file pages included (oom_badness in mm/oom_kill.c), and Slurm counts it. local
// says that no server can keep a file's pages from coming back: the holder would wait for
// them, and with it the command's status.
func Slim(local func(file string) bool) { drop(cleanRanges("/proc/self/smaps", local)) }

// cleanRanges are the read-only mappings of the files that are meant in which no page is
// our own: what the dynamic linker has written must stay, in swap too. It makes little garbage, which
// would stay with the holder.
func cleanRanges(smaps string, meant func(file string) bool) (ranges [][2]uintptr) {
	f, err := os.Open(smaps)
	if err != nil {
		return nil
	}
	defer f.Close()
	var header string // of the mapping that is being read, "" for none of those
	var file string
	var asked, clean bool // of file; of the mapping
	for sc := bufio.NewScanner(f); sc.Scan(); {
		key, value, _ := bytes.Cut(sc.Bytes(), []byte(":"))
		switch string(key) {
		case "Anonymous", "Swap":
			clean = clean && string(bytes.TrimSpace(value)) == "0 kB"
		case "VmFlags": // the last line of each
			if header != "" && clean {
				var from, to uintptr
				if n, err := fmt.Sscanf(header, "%x-%x", &from, &to); err == nil && n == 2 {
					ranges = append(ranges, [2]uintptr{from, to})
				}
			}
			header = ""
		default:
			at := bytes.IndexByte(sc.Bytes(), '/')
			if at < 0 || !bytes.Contains(sc.Bytes()[:at], []byte(" r-xp ")) && !bytes.Contains(sc.Bytes()[:at], []byte(" r--p ")) {
				continue // no mapping of a file, or a figure of one
			}
			if name := string(sc.Bytes()[at:]); name != file {
				file, asked = name, meant(name)
			}
			if asked {
				header, clean = sc.Text(), true
			}
		}
	}
	return ranges
}

func drop(ranges [][2]uintptr) {
	for _, r := range ranges {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, r[0], r[1]-r[0], unix.MADV_DONTNEED)
	}
}

// Hands are what a holder trims with. Their thread is started at once, so call
// it before the command begins.
func Hands() func(hold.TrimRequest) hold.TrimAnswer {
	return hands(trim.NewTracer().Do)
}

func hands(do func(trim.Piece) trim.Answer) func(hold.TrimRequest) hold.TrimAnswer {
	return func(r hold.TrimRequest) (refused hold.TrimAnswer) {
		defer func() {
			if recover() != nil { // it would end the holder
				refused = hold.TrimAnswer{Refusal: uint8(trim.Failed)}
			}
		}()
		a := do(trim.Piece{
			ID: rss.ProcID{PID: r.PID, Start: r.Start},
			Lo: r.Lo, Hi: r.Hi, Offset: r.Offset, Dev: r.Dev, Inode: r.Inode,
		})
		return hold.TrimAnswer{
			Refusal: uint8(a.Refusal), Threads: a.Threads, Advised: uint64(a.Advised),
			Stop: a.Stop, Attached: a.Attached, Dropping: a.Dropping,
		}
	}
}
