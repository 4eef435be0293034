package guest

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

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
