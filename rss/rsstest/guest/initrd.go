package guest

import (
	"bufio"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// initScript is the first process of a guest.
//
//go:embed init
var initScript string

// writeInitrd writes the file system that a guest starts from, which it keeps
// in memory.
func (m *machine) writeInitrd(name, word string, o Options) error {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer out.Close()
	w := bufio.NewWriterSize(out, 1<<20)
	a := archive{w: w, seen: map[string]bool{"/": true}}
	for _, dir := range []string{"/proc", "/sys", "/dev", "/tmp", "/root", "/disk"} {
		a.folder(dir)
	}
	a.text("/init", 0o755, initScript)
	a.text("/guest/word", 0o644, word+"\n")
	a.text("/guest/start", 0o644, startScript(o))
	a.text("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n")
	a.text("/etc/group", 0o644, "root:x:0:\nuser:x:1000:\n")
	a.file("/guest/program", o.Binary)
	a.file("/bin/busybox", filepath.Join(m.dir, "busybox"))
	if o.DiskMB > 0 {
		a.text("/guest/disk", 0o644, "")
		modules, err := filepath.Glob(filepath.Join(m.dir, "*.ko"))
		if err != nil {
			return err
		}
		for _, module := range modules {
			a.file("/guest/"+filepath.Base(module), module)
		}
	}
	for _, to := range slices.Sorted(maps.Keys(o.Files)) {
		a.file(path.Clean("/"+to), o.Files[to])
	}
	a.entry("TRAILER!!!", 0, 0, strings.NewReader(""))
	return errors.Join(a.err, w.Flush(), out.Close())
}

// startScript has init's shell become the program.
func startScript(o Options) string {
	words := slices.Concat([]string{"PATH=/bin", "HOME=/root", "TMPDIR=/tmp"}, o.Env, []string{"/guest/program"}, o.Args)
	for i, w := range words {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return "exec env -i " + strings.Join(words, " ") + "\n"
}

// archive is a cpio archive of the kind that the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst). All is root's.
type archive struct {
	w    io.Writer
	seen map[string]bool // folders
	ino  int
	err  error // the first one
}

func (a *archive) folder(name string) {
	if a.seen[name] {
		return
	}
	a.seen[name] = true
	a.folder(path.Dir(name))
	a.entry(name, 0o040755, 0, strings.NewReader(""))
}

func (a *archive) text(name string, perm int, content string) {
	a.folder(path.Dir(name))
	a.entry(name, 0o100000|perm, int64(len(content)), strings.NewReader(content))
}

func (a *archive) file(name, from string) {
	if a.err != nil {
		return
	}
	f, err := os.Open(from)
	if err != nil {
		a.err = err
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		a.err = err
		return
	}
	// What may be run here may be run there, by every user.
	perm := 0o644
	if info.Mode().Perm()&0o111 != 0 {
		perm = 0o755
	}
	a.folder(path.Dir(name))
	a.entry(name, 0o100000|perm, info.Size(), f)
}

func (a *archive) entry(name string, mode int, size int64, content io.Reader) {
	if a.err != nil {
		return
	}
	name = strings.TrimPrefix(name, "/")
	a.ino++
	const header = 6 + 13*8
	_, a.err = fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00%s",
		a.ino, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name, padding(header+len(name)+1))
	if a.err != nil {
		return
	}
	if _, a.err = io.CopyN(a.w, content, size); a.err != nil {
		a.err = fmt.Errorf("cannot copy %s: %w", name, a.err)
		return
	}
	_, a.err = io.WriteString(a.w, padding(int(size%4)))
}

// padding fills up to a multiple of four.
func padding(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }

// libraries is where Debian has them; those of Slurm find each other by a
// RUNPATH.
var libraries = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib64", "/usr/lib"}

// AddDynamic adds programs and plugins that are not static to the files of a
// guest, with the libraries that they name: a guest has none. root is "/" or a
// Debian root that they are taken from; names are theirs below it.
func AddDynamic(files map[string]string, root string, names ...string) error {
	for _, name := range names {
		path, err := below(root, name)
		if err != nil {
			return fmt.Errorf("cannot find %s in %s: %w", name, root, err)
		}
		if files[name] != "" {
			continue
		}
		files[name] = path
		f, err := elf.Open(path)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", path, err)
		}
		needed, err := f.ImportedLibraries()
		f.Close()
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", path, err)
		}
		for _, lib := range needed {
			i := slices.IndexFunc(libraries, func(dir string) bool {
				_, err := below(root, filepath.Join(dir, lib))
				return err == nil
			})
			if i < 0 {
				return fmt.Errorf("cannot find %s, which %s needs", lib, path)
			}
			if err := AddDynamic(files, root, filepath.Join(libraries[i], lib)); err != nil {
				return err
			}
		}
	}
	// What the kernel starts first, by the name that it has in every program.
	const loader = "/lib64/ld-linux-x86-64.so.2"
	path, err := below(root, "/usr"+loader)
	files[loader] = path
	return err
}

// below is the file that a name leads to below a root, whose links are meant to
// be followed from there.
func below(root, name string) (string, error) {
	for range 16 {
		path := filepath.Join(root, name)
		to, err := os.Readlink(path)
		if err != nil {
			_, err := os.Stat(path)
			return path, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		name = to
	}
	return "", fmt.Errorf("%s is a link to a link to a link", name)
}
