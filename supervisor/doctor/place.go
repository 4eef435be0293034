package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// Place is a directory that a run writes to.
type Place struct {
	Dir string
	// FS names its file system, and Free is what is free there.
	FS   string
	Free rss.Bytes
	// Err says why nothing can be written there.
	Err error
	// Passed are better places that were passed over, with the reason of each.
	Passed []error
	// Off says who switched it off.
	Off string
	// Need is what must be free.
	Need rss.Bytes
}

func (p *Place) on() string {
	if p.FS == "" {
		return p.Dir
	}
	return fmt.Sprintf("%s, %s, %v free", p.Dir, p.FS, p.Free)
}

// placeCheck is the check of one such directory, in words.
type placeCheck struct {
	name, source string
	off, offDo   string // it is switched off
	err, errDo   string // nothing can be written
	full, fullDo string // less is free than needed; empty where that is no fault
	passed       string // what a worse place means
	passedDo     string // empty where that is no fault
}

const setRuntime = "have RSSWARDEN_RUNTIME name a directory of yours on a disk of this node"

var (
	// The loader hook and the watcher talk through the run directory.
	runDir = placeCheck{
		name: NameRunDir, source: "RSSWARDEN_RUNTIME, TMPDIR, /tmp",
		off: "none is made: the loader hook is off", err: "none can be made", errDo: setRuntime,
		full: "; nearly full: what the hook has to say may be lost", fullDo: "free some of it, or " + setRuntime, passedDo: setRuntime,
	}
	hookDir = placeCheck{
		name: NameHookDir, source: "XDG_CACHE_HOME, HOME",
		off: "none is needed: the hook is off", err: "the hook cannot be written", errDo: "have XDG_CACHE_HOME name a directory of yours",
		passed: "; each run writes it again", passedDo: "have XDG_CACHE_HOME name a directory that only you can write to",
	}
	// A home on a file server is no fault of the full record's.
	recordDir = placeCheck{
		name: NameRecord, source: "RSSWARDEN_RUNTIME, TMPDIR, /tmp; outside Slurm XDG_STATE_HOME, HOME",
		off: "no record is kept", offDo: "leave the option record at auto, to know afterwards why a job died",
		err: "no full record can be kept", errDo: "name a directory on a disk of this node: rsswarden run --record DIR",
	}
	// The journal outlives the node.
	journalDir = placeCheck{
		name: NameJournal, source: "in Slurm SLURM_SUBMIT_DIR; XDG_STATE_HOME, HOME",
		off: "no journal is kept", err: "no journal can be kept", errDo: "submit from a directory that you can write to, or have XDG_STATE_HOME name one",
		full: "; nearly full", fullDo: "free some of it: the journal ends where the file system is full",
		passedDo: "submit from a directory that you can write to",
	}
)

func (k placeCheck) judge(p Place) Check {
	c := Check{Name: k.name, Status: OK, Found: p.on(), Source: k.source}
	switch {
	case p.Off != "":
		c.Source = p.Off
		return c.as(Off, k.offDo, "%s", k.off)
	case p.Err != nil:
		return c.as(Off, k.errDo, "%s: %v", k.err, p.Err)
	case k.full != "" && p.Free < p.Need:
		c.Status, c.Do = Limited, k.fullDo
		c.Found += k.full
	}
	if len(p.Passed) == 0 {
		return c
	}
	c.Found += fmt.Sprintf("; passed over: %v%s", p.Passed[0], k.passed)
	if k.passedDo != "" {
		c.Status, c.Do = Limited, k.passedDo
	}
	return c
}

// fileSystems names what statfs(2) tells by a number (linux/magic.h and the
// modules of network file systems).
var fileSystems = map[uint32]string{
	0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs", 0x2fc12fc1: "zfs",
	0x858458f6: "ramfs", 0x9fa0: "proc", 0x62656572: "sysfs", 0x73717368: "squashfs", 0x6969: "nfs", 0x0bd00bd0: "lustre",
	0x47504653: "gpfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x19830326: "beegfs", 0x00c36400: "ceph", 0x5346414f: "afs",
	0x65735546: "fuse", 0xf2f52010: "f2fs", 0x01021997: "9p",
}

// statFS is the kind of a file system, and how much of it is used; size 0 if it has no
// limit of its own.
func statFS(dir string) (name string, used, size rss.Bytes, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", 0, 0, err
	}
	name, ok := fileSystems[uint32(st.Type)]
	if !ok {
		name = fmt.Sprintf("file system %#x", uint32(st.Type))
	}
	block := uint64(st.Bsize)
	// What is kept for root is used, for everybody else.
	return name, rss.Bytes((st.Blocks - st.Bavail) * block), rss.Bytes(st.Blocks * block), nil
}

// place looks at a directory, or at the one in which it will be made.
func place(dir string) Place {
	p := Place{Dir: dir}
	looked, ok := within(func() Place {
		name, used, size, err := statFS(record.Existing(dir))
		p.FS, p.Free, p.Err = name, size.Sub(used), err
		return p
	})
	if !ok {
		p.Err = fmt.Errorf("%s: no answer from the file system within %v", dir, patience)
		return p
	}
	return looked
}

// writable says why nothing can be made in a directory, which need not exist yet.
func writable(dir string) error {
	at := record.Existing(dir)
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("cannot write to %s: %w", at, err)
	}
	return nil
}

func (d *prober) runDir(prepared loader.Prepared, err error) Check {
	if err != nil {
		return runDir.judge(Place{Err: err})
	}
	p := place(filepath.Dir(filepath.Dir(prepared.Dir)))
	p.Need = rss.MiB
	for _, name := range []string{loader.EnvRuntime, "TMPDIR"} {
		dir := d.get(name)
		if dir == "" {
			continue
		}
		if LeadsTo(dir, p.Dir) {
			break
		}
		p.Passed = append(p.Passed, fmt.Errorf("%s=%s: %w", name, dir, Unfit(dir)))
	}
	return runDir.judge(p)
}

// LeadsTo says that a directory of the environment is the place that is used, whose path
// has no links in it.
func LeadsTo(dir, place string) bool {
	if !filepath.IsAbs(dir) || place == "" {
		return false
	}
	at, ok := within(func() string { at, _ := nodedir.Resolve(dir); return at })
	return filepath.Clean(dir) == place || ok && at == place
}

// ErrFit: nothing says why a place is unfit.
var ErrFit = errors.New("nothing can be made in it")

// Unfit says why no run directory can be made below a place.
func Unfit(dir string) error {
	if !filepath.IsAbs(dir) {
		return errors.New("it is no absolute path")
	}
	err, ok := within(func() error {
		dir, err := nodedir.Resolve(dir)
		if err != nil {
			return err
		}
		if err := nodedir.CheckLocal(dir); err != nil {
			return err
		}
		all := filepath.Join(dir, "rsswarden-"+strconv.Itoa(os.Geteuid()))
		if err := nodedir.CheckOwn(all); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return writable(dir)
	})
	switch {
	case !ok:
		return errors.New("no answer from its file system")
	case err == nil:
		return ErrFit
	}
	return err
}

func (d *prober) hookDir(prepared loader.Prepared, err error) Check {
	if err != nil {
		k := hookDir
		if strings.HasPrefix(err.Error(), loader.NoRunDir) {
			k.errDo = runDir.errDo
		}
		return k.judge(Place{Err: err})
	}
	p := place(prepared.Hook)
	if prepared.Passed != nil {
		p.Passed = []error{prepared.Passed}
	}
	return hookDir.judge(p)
}

// records are the places of the record and the journal of a run.
func (d *prober) records() []Check {
	places := record.DefaultPlaces(d.Lookup, os.Getuid())
	switch d.Record {
	case "", settings.RecordAuto:
	case settings.RecordNone:
		off := "record=none of " + d.Origin("record")
		return []Check{recordDir.judge(Place{Off: off}), journalDir.judge(Place{Off: off})}
	default:
		places.Records = []string{d.Record}
	}
	journal := first(places.Journals, 0, writable)
	journal.Need = rss.MiB
	return []Check{recordDir.judge(first(places.Records, onDisk, record.CheckDir)), journalDir.judge(journal)}
}

// What must be free for a full record: its size, less on tmpfs, and 64 MiB to spare.
const onDisk, inMemory = 128 * rss.MiB, 72 * rss.MiB

// first is the first place that is fit, with the faults of those before it.
func first(dirs []string, need rss.Bytes, check func(string) error) Place {
	var passed []error
	for _, dir := range dirs {
		p := place(dir)
		p.Need, p.Passed = need, passed
		if p.Err == nil {
			err, ok := within(func() error { return check(dir) })
			if p.Err = err; !ok {
				p.Err = fmt.Errorf("%s: no answer from the file system within %v", dir, patience)
			}
		}
		switch p.FS {
		case "tmpfs":
			p.Need = min(need, inMemory)
		case "ramfs": // has no size
			p.Need = 0
		}
		if p.Err == nil && p.Free < p.Need {
			p.Err = fmt.Errorf("%s has only %v free", dir, p.Free)
		}
		if p.Err == nil {
			return p
		}
		passed = append(passed, p.Err)
	}
	if len(passed) == 0 {
		return Place{Err: errors.New("no place for it is known")}
	}
	return Place{Err: errors.Join(passed...)}
}
