// Package hook holds the Python side of the loader protocol, as files for a
// directory that goes first on PYTHONPATH.
//
// sitecustomize.py is what every Python of the job runs at its start; it
// parses from 2.7 on, does nothing below 3.8, and hands on to the
// sitecustomize it precedes. The package _rsswarden is loaded only when
// torch.utils.data.dataloader is, and only in a process that the run directory
// was made for. Every line of it that runs in the user's call path is guarded:
// an exception turns the hook off, and the user's code goes on.
package hook

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sync"
)

//go:embed sitecustomize.py _rsswarden/*.py
var files embed.FS

// File is one file of the hook.
type File struct {
	Name string // slash-separated, relative to the hook directory
	Data []byte
}

// Files returns every file of the hook in the order of their names.
func Files() []File {
	all, _ := once()
	return all
}

// Hash names the content of all files: equal hashes, equal hooks. It is 16
// hexadecimal digits of SHA-256.
func Hash() string {
	_, hash := once()
	return hash
}

// once reads them where they are needed: not in a watcher.
var once = sync.OnceValues(load)

func load() ([]File, string) {
	var list []File
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(data))
		sum.Write(data)
		list = append(list, File{name, data})
		return nil
	})
	if err != nil {
		panic("internal error: embedded hook: " + err.Error())
	}
	return list, hex.EncodeToString(sum.Sum(nil)[:8])
}
