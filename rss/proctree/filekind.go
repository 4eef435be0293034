package proctree

import "strings"

// FileKind is what a mapped file is, as its name tells.
type FileKind string

// The kinds. [FileShm] is in memory and no file of a disk: trimming gives nothing
// back of it.
const (
	FileLMDB    FileKind = "lmdb"    // *.mdb, *.lmdb: mapped shared, as a whole
	FileArrow   FileKind = "arrow"   // *.arrow, *.feather, *.ipc, *.parquet: pyarrow maps them private and read-only
	FileArray   FileKind = "array"   // *.npy, *.npz, *.bin, *.idx, *.dat: numpy.memmap
	FileWeights FileKind = "weights" // *.safetensors, *.pt, *.pth, *.ckpt, *.gguf
	FileLibrary FileKind = "library" // *.so, *.so.N, and all that is mapped executable
	FileShm     FileKind = "shm"     // /dev/shm, memfd, System V, MAP_SHARED without a file
	FileDevice  FileKind = "device"  // /dev, /dev/shm aside
	FileOther   FileKind = "other"
)

var kindsBySuffix = map[string]FileKind{
	"mdb": FileLMDB, "lmdb": FileLMDB,
	"arrow": FileArrow, "feather": FileArrow, "ipc": FileArrow, "parquet": FileArrow,
	"npy": FileArray, "npz": FileArray, "bin": FileArray, "idx": FileArray, "dat": FileArray,
	"safetensors": FileWeights, "pt": FileWeights, "pth": FileWeights, "ckpt": FileWeights, "gguf": FileWeights,
	"so": FileLibrary,
}

// fileKind knows a file by its path, " (deleted)" taken off.
func fileKind(path string) FileKind {
	switch {
	case strings.Contains(path, "/dev/shm/"), strings.HasPrefix(path, "/memfd:"), strings.HasPrefix(path, "/SYSV"), path == "/dev/zero":
		return FileShm
	case strings.HasPrefix(path, "/dev/"):
		return FileDevice
	}
	base := path[strings.LastIndexByte(path, '/')+1:]
	if i := strings.LastIndexByte(base, '.'); i >= 0 {
		if k, ok := kindsBySuffix[base[i+1:]]; ok {
			return k
		}
	}
	if strings.Contains(base, ".so.") {
		return FileLibrary
	}
	return FileOther
}
