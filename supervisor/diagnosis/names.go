package diagnosis

import (
	"path"
	"strings"
)

// loads says that a process of that name, started by one of the other, is a
// loader worker.
func loads(comm, parent string) bool {
	return strings.HasPrefix(comm, "pt_data_worker") || strings.HasPrefix(comm, "pt_multiproces") ||
		isPython(comm) && isPython(parent)
}

func isPython(comm string) bool { return strings.HasPrefix(comm, "python") }

// program says that a mapped file is one of a program and its libraries: they are
// read as they are first used, and then no more.
func program(file string) bool {
	name := path.Base(strings.TrimSuffix(file, " (deleted)"))
	return strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.") || strings.Contains(file, "/bin/") ||
		strings.Contains(file, "/locale/") || name == "gconv-modules.cache"
}

// unnamed says that shared memory is no file of /dev/shm: what MAP_ANONYMOUS
// makes, which the kernel shows as /dev/zero. So does pinned memory of CUDA.
func unnamed(file string) bool {
	return strings.HasPrefix(file, "/dev/zero") || strings.HasPrefix(file, "/dev/nvidia") || strings.HasPrefix(file, "/SYSV")
}

// batch says that shared memory is a tensor that torch sent to another process.
func batch(file string) bool { return strings.HasPrefix(path.Base(file), "torch_") }

// inMemory says that what is mapped is no file of a disk.
func inMemory(file string) bool {
	return unnamed(file) || batch(file) || !strings.HasPrefix(file, "/") ||
		strings.HasPrefix(file, "/dev/") || strings.HasPrefix(file, "/memfd:")
}

// arrow says that a file is one of Apache Arrow's, by its name.
func arrow(file string) bool {
	switch path.Ext(strings.TrimSuffix(file, " (deleted)")) {
	case ".arrow", ".feather", ".arrows", ".ipc":
		return true
	}
	return false
}

// kind is what a file is, in the words of package proctree.
func (f *File) kind() string {
	switch {
	case f.Kind != "":
		return f.Kind
	case inMemory(f.Path):
		return "shm"
	case program(f.Path):
		return "library"
	case arrow(f.Path):
		return "arrow"
	}
	return "other"
}
