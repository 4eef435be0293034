package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// fileSystems names what statfs(2) tells by a number (linux/magic.h and the
// modules of network file systems).
var fileSystems = map[uint32]string{
	0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs", 0x2fc12fc1: "zfs",
	0x858458f6: "ramfs", 0x9fa0: "proc", 0x62656572: "sysfs", 0x73717368: "squashfs", 0x6969: "nfs", 0x0bd00bd0: "lustre",
	0x47504653: "gpfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x19830326: "beegfs", 0x00c36400: "ceph", 0x5346414f: "afs",
	0x65735546: "fuse", 0xf2f52010: "f2fs", 0x01021997: "9p",
}

// statFS says of what kind a file system is, and what of it is used; size 0
// where it has no end of its own.
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

// place looks at a directory, or where it is still to be made at what will hold
// it, for as long as a file system may take to answer.
func place(dir string) doctor.Place {
	p := doctor.Place{Dir: dir}
	looked, ok := within(func() doctor.Place {
		name, used, size, err := statFS(existing(dir))
		p.FS, p.Free, p.Err = name, size.Sub(used), err
		return p
	})
	if !ok {
		p.Err = fmt.Errorf("%s: no answer from the file system within %v", dir, preparePatience)
		return p
	}
	return looked
}

// existing is the directory, or the nearest above it that is there.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// writable says why nothing can be made in a directory that need not be there
// yet.
func writable(dir string) error {
	at := existing(dir)
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("cannot write to %s: %w", at, err)
	}
	return nil
}

// runDir is where the run directory of a run would be, and why in no better
// place.
func (d *diagnosis) runDir(prepared loader.Prepared, err error) doctor.Check {
	if err != nil {
		return doctor.RunDir(doctor.Place{Err: err})
	}
	p := place(filepath.Dir(filepath.Dir(prepared.Dir)))
	p.Need = rss.MiB
	for _, name := range []string{loader.EnvRuntime, "TMPDIR"} {
		dir := d.p.get(name)
		if dir == "" {
			continue
		}
		if leadsTo(dir, p.Dir) {
			break
		}
		p.Passed = append(p.Passed, fmt.Errorf("%s=%s: %w", name, dir, unfit(dir)))
	}
	return doctor.RunDir(p)
}

// leadsTo says whether a directory of the environment is the place that is used, whose
// path has no links in it.
func leadsTo(dir, place string) bool {
	if !filepath.IsAbs(dir) || place == "" {
		return false
	}
	at, ok := within(func() string { at, _ := nodedir.Resolve(dir); return at })
	return filepath.Clean(dir) == place || ok && at == place
}

// errFit is said of a place of which nothing says why it would be unfit.
var errFit = errors.New("nothing can be made in it")

// unfit says why no run directory can be made below a place, in the order in
// which that is looked at.
func unfit(dir string) error {
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
		return errFit
	}
	return err
}

func (d *diagnosis) hookDir(prepared loader.Prepared, err error) doctor.Check {
	if err != nil {
		return doctor.HookDir(doctor.Place{Err: err})
	}
	p := place(prepared.Hook)
	if prepared.Passed != nil {
		p.Passed = []error{prepared.Passed}
	}
	return doctor.HookDir(p)
}

// records are where the record and the journal of a run would go.
func (d *diagnosis) records() []doctor.Check {
	places := record.DefaultPlaces(d.p.lookup, os.Getuid())
	switch s := &d.settings; s.Record {
	case supervisor.RecordNone:
		off := "record=none of " + d.origin("record")
		return []doctor.Check{doctor.Record(doctor.Place{Off: off}), doctor.Journal(doctor.Place{Off: off})}
	case "", supervisor.RecordAuto:
	default:
		places.Records = []string{s.Record}
	}
	const full, spare = 64 * rss.MiB, 64 * rss.MiB
	journal := first(places.Journals, 0, writable)
	journal.Need = rss.MiB
	return []doctor.Check{doctor.Record(first(places.Records, full+spare, record.CheckDir)), doctor.Journal(journal)}
}

// first is the first place that is fit, with why those before it are not.
func first(dirs []string, need rss.Bytes, check func(string) error) doctor.Place {
	var passed []error
	for _, dir := range dirs {
		p := place(dir)
		p.Need, p.Passed = need, passed
		if p.Err == nil {
			err, ok := within(func() error { return check(dir) })
			if p.Err = err; !ok {
				p.Err = fmt.Errorf("%s: no answer from the file system within %v", dir, preparePatience)
			}
		}
		if p.Err == nil && p.FS != "tmpfs" && p.Free < need {
			p.Err = fmt.Errorf("%s has only %v free", dir, p.Free)
		}
		if p.Err == nil {
			return p
		}
		passed = append(passed, p.Err)
	}
	if len(passed) == 0 {
		return doctor.Place{Err: errors.New("no place for it is known")}
	}
	return doctor.Place{Err: errors.Join(passed...)}
}
