// Command pack makes the packages of a release that no program of Debian makes, on any
// machine: RPMs, and a wheel for Python. release.sh calls it:
//
//	pack rpm   -version V -arch amd64 -control FILE -root DIR -scripts DIR >FILE.rpm
//	pack srpm  -version V -control FILE -root DIR >FILE.src.rpm
//	pack wheel -version V -arch amd64 -control FILE -root DIR >FILE.whl
//
// Names, description and address are those of a control file of Debian's. All times are
// SOURCE_DATE_EPOCH's: the same files make the same bytes.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// release is what is packed.
type release struct {
	version, arch string // arch as Go and Debian name it
	root, scripts string // directories
	control       map[string]string
	time          time.Time
}

const licence = "Apache-2.0"

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	kinds := map[string]func(release, io.Writer) error{"rpm": binaryRPM, "srpm": sourceRPM, "wheel": wheel}
	if len(args) == 0 || kinds[args[0]] == nil {
		return fmt.Errorf("cannot pack %q: not rpm, srpm or wheel", args)
	}
	var r release
	var control string
	flags := flag.NewFlagSet("pack", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "as packages of this kind spell it")
	flags.StringVar(&r.arch, "arch", "", "amd64 or arm64")
	flags.StringVar(&r.root, "root", "", "what is packed")
	flags.StringVar(&r.scripts, "scripts", "", "where prerm and postrm are")
	flags.StringVar(&control, "control", "", "a control file")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("cannot read SOURCE_DATE_EPOCH: %w", err)
	}
	r.time = time.Unix(epoch, 0).UTC()
	text, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	r.control = fields(string(text))
	return kinds[args[0]](r, out)
}

// fields are those of a control file, the last of each name. The first line of a
// description is "Summary", the others are "Description".
func fields(control string) map[string]string {
	all, name := map[string]string{}, ""
	for line := range strings.Lines(control) {
		line = strings.TrimRight(line, "\n")
		if more, ok := strings.CutPrefix(line, " "); ok {
			if name == "Description" {
				all[name] += strings.TrimPrefix(more, ".") + "\n"
			}
			continue
		}
		var value string
		name, value, _ = strings.Cut(line, ": ")
		if name == "Description" {
			all["Summary"], value = value, ""
		}
		all[name] = value
	}
	return all
}

// file is one of a tree: of a directory and a link without content.
type file struct {
	path string // below the root
	mode fs.FileMode
	body []byte
	link string
}

// tree returns all below a directory, in the order of their names.
func tree(root string) (files []file, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := file{mode: info.Mode()}
		f.path, err = filepath.Rel(root, path)
		switch {
		case err != nil:
		case f.mode&fs.ModeSymlink != 0:
			f.link, err = os.Readlink(path)
		case f.mode.IsRegular():
			f.body, err = os.ReadFile(path)
		case !f.mode.IsDir():
			err = fmt.Errorf("cannot pack %s: %s", path, f.mode)
		}
		files = append(files, f)
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("cannot pack %s: empty", cmp.Or(root, "nothing"))
	}
	return files, err
}
