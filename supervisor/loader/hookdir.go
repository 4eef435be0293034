package loader

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/rsswarden/rsswarden/supervisor/loader/hook"
)

// layHook returns a directory with the files of the hook, under the first of
// parents that is fit, else in the run directory. Its name holds the hash of
// its content, so that versions live side by side and one that is in use is
// never changed.
func layHook(parents []string, runDir string) (string, error) {
	for _, parent := range parents {
		dir, err := layHookIn(parent)
		if err == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(runDir, "hook-"+hook.Hash())
	return dir, writeHook(dir)
}

func layHookIn(parent string) (string, error) {
	dir := filepath.Join(parent, "hook-"+hook.Hash())
	err := checkHook(dir)
	if err == nil {
		return dir, checkParents(parent)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	if err := checkParents(parent); err != nil {
		return "", err
	}
	// Written beside and renamed: another run sees all of it or nothing.
	tmp := dir + "." + strconv.Itoa(os.Getpid()) + ".tmp"
	os.RemoveAll(tmp)
	if err := writeHook(tmp); err != nil {
		os.RemoveAll(tmp)
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil {
		os.RemoveAll(tmp)
		// Somebody was faster.
		return dir, checkHook(dir)
	}
	return dir, nil
}

func writeHook(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, f := range hook.Files() {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			return err
		}
	}
	// A file where Python would make the directory for its compiled files:
	// none are written, and no setting of the user's interpreter is touched.
	for _, sub := range []string{"", "_rsswarden"} {
		if err := os.WriteFile(filepath.Join(dir, sub, "__pycache__"), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// checkHook says whether dir holds exactly the files of the hook, written by
// this user or by root and by nobody else.
func checkHook(dir string) error {
	if err := checkSafe(dir); err != nil {
		return err
	}
	for _, f := range hook.Files() {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := checkSafe(path); err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, f.Data) {
			return fmt.Errorf("%s has been changed", path)
		}
	}
	return nil
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
	case !ok || !trusted(st.Uid):
		return fmt.Errorf("%s belongs to somebody else", path)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written by others (mode %04o)", path, info.Mode().Perm())
	}
	return nil
}
