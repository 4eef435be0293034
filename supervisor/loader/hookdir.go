package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/loader/hook"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// layHook returns a directory with the files of the hook, under the first of
// parents that is fit, else in the run directory. Its name holds the hash of
// its content, so that versions live side by side and one that is in use is
// never changed.
//
// passed says why earlier places were not: one that is not to be trusted is to
// be heard of.
func layHook(parents []string, runDir string) (dir string, passed, err error) {
	var errs []error
	for _, parent := range parents {
		dir, err := layHookIn(parent)
		if err == nil {
			return dir, errors.Join(errs...), nil
		}
		errs = append(errs, err)
	}
	passed = errors.Join(errs...)
	dir = filepath.Join(runDir, HookName())
	if err = checkElement(dir); err == nil {
		err = writeHook(dir)
	}
	if err != nil {
		return "", passed, errors.Join(passed, err)
	}
	return dir, passed, nil
}

// distrusted says that an error of [layHookIn] is none of the system, nor a colon.
func distrusted(err error) bool {
	var sys *fs.PathError
	var link *os.LinkError
	return err != nil && !errors.As(err, &sys) && !errors.As(err, &link) && !errors.Is(err, errColon)
}

func layHookIn(parent string) (string, error) {
	if err := checkElement(parent); err != nil {
		return "", err // before anything is made
	}
	// Python looks its path up again and again: the path must have no link in it that
	// another user can change.
	parent, err := nodedir.MakeAll(parent, math.MaxInt, 0o700)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, HookName())
	if err := checkElement(dir); err != nil {
		return "", err
	}
	err = checkHook(dir)
	if err == nil {
		markUsed(dir)
		return dir, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	sweepHooks(parent, filepath.Base(dir))
	// Written beside and renamed: another run sees all of it or nothing.
	tmp := temporary(dir)
	os.RemoveAll(tmp)
	if err := writeHook(tmp); err != nil {
		os.RemoveAll(tmp)
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil {
		os.RemoveAll(tmp)
		// Another run was faster.
		return dir, checkHook(dir)
	}
	return dir, nil
}

// compiled is where Python keeps the package compiled, for the next one: to compile it takes
// 2 MiB and 35 ms in each process.
const compiled = "_rsswarden/__pycache__"

// HookName is that of the hook's directory.
func HookName() string { return hookPrefix + hook.Hash() }

// HookContents are the files of a hook's directory and its directories, by their names. There is
// a file where Python 3 would make the directory for a compiled sitecustomize, and directories
// where Python 2 would write one: none is written, and no setting of the user's interpreter is
// touched.
func HookContents() (files map[string]hook.File, dirs map[string]bool) {
	files = map[string]hook.File{"__pycache__": {}}
	dirs = map[string]bool{".": true, "sitecustomize.pyc": true, "sitecustomize.pyo": true, compiled: true}
	for _, f := range hook.Files() {
		files[f.Name] = f
		dirs[path.Dir(f.Name)] = true
	}
	return files, dirs
}

func writeHook(dir string) error {
	files, dirs := HookContents()
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	for name, f := range files {
		if err := os.WriteFile(filepath.Join(dir, name), f.Data(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// checkHook says whether dir holds exactly the files of the hook, written by
// this user or by root alone, and what Python made of them. One file more is one too many:
// Python would take a sitecustomize.so or a directory sitecustomize before
// sitecustomize.py.
func checkHook(dir string) error {
	files, dirs := HookContents()
	missing, buffer := len(files)+len(dirs), make([]byte, 16<<10)
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil {
			err = checkSafe(file)
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if !d.IsDir() && path.Dir(name) == compiled {
			module, _, _ := strings.Cut(path.Base(name), ".") // MODULE.cpython-311.pyc, more while it is written
			if _, known := files["_rsswarden/"+module+".py"]; known {
				return nil
			}
		}
		f, known := files[name]
		if d.IsDir() {
			known = dirs[name]
		}
		if !known {
			return fmt.Errorf("%s does not belong there", file)
		}
		missing--
		if d.IsDir() {
			return nil
		}
		same, err := sameFile(file, f, buffer)
		if err == nil && !same {
			err = fmt.Errorf("%s has been changed", file)
		}
		return err
	})
	if err == nil && missing > 0 {
		return fmt.Errorf("%s is not whole", dir)
	}
	return err
}

// sameFile says whether a file has the content of the hook's.
func sameFile(file string, f hook.File, buffer []byte) (bool, error) {
	r, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer r.Close()
	return f.Is(r, buffer)
}

func checkSafe(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir() && !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither file nor directory", path)
	case !ok || !nodedir.Trusted(st.Uid):
		return fmt.Errorf("%s belongs to another user", path)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others (mode %04o)", path, info.Mode().Perm())
	}
	return nil
}

var errColon = errors.New("has a colon, which would part it on PYTHONPATH")

// checkElement says whether dir can be an element of PYTHONPATH.
func checkElement(dir string) error {
	if strings.Contains(dir, ":") {
		return fmt.Errorf("%s %w", dir, errColon)
	}
	return nil
}

// IsHook says whether an element of PYTHONPATH is named as the hook's directories are.
func IsHook(dir string) bool {
	name := filepath.Base(dir)
	return len(name) == hookLength && strings.HasPrefix(name, hookPrefix) && filepath.IsAbs(dir)
}

const (
	hookPrefix = "hook-"
	hookLength = len(hookPrefix) + 16 // hook.Hash's digits
	tmpSuffix  = ".tmp"

	// hookKept is how long a hook stays after a run was last started with it.
	// A job that lives longer starts its Pythons without one from then on.
	hookKept = 90 * 24 * time.Hour
	// tmpKept is how long a hook stays that was not written to its end.
	tmpKept = 24 * time.Hour
	// useNoted is how old the note of the last use may become: the home
	// directory may lie on a file server.
	useNoted = 24 * time.Hour
)

// temporary names a directory beside dir, for this process alone.
func temporary(dir string) string { return dir + "." + strconv.Itoa(os.Getpid()) + tmpSuffix }

// markUsed notes in the time stamp of dir that a run is started with it.
func markUsed(dir string) {
	now := time.Now()
	if info, err := os.Lstat(dir); err == nil && now.Sub(info.ModTime()) > useNoted {
		_ = os.Chtimes(dir, now, now)
	}
}

// sweepHooks removes the hooks of other versions under parent that no run was
// started with for hookKept, on any node. It is called when a version is new
// here, which is when there may be one to remove.
func sweepHooks(parent, keep string) {
	names, err := readDirNames(parent, 4096)
	if err != nil {
		return
	}
	for _, name := range names {
		kept := hookKept
		switch {
		case name == keep || !strings.HasPrefix(name, hookPrefix):
			continue
		case strings.HasSuffix(name, tmpSuffix):
			kept = tmpKept
		case len(name) != hookLength:
			continue
		}
		dir := filepath.Join(parent, name)
		info, err := os.Lstat(dir)
		if err != nil || nodedir.CheckOwn(dir) != nil || time.Since(info.ModTime()) < kept {
			continue
		}
		// Gone in one step: a Python that starts now finds all of it or nothing.
		tmp := temporary(filepath.Join(parent, name))
		if os.Rename(dir, tmp) == nil {
			_ = os.RemoveAll(tmp)
		}
	}
}
