package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// FuzzSalvage searches any bytes at all.
func FuzzSalvage(f *testing.F) {
	whole := f.TempDir()
	fill(f, whole, 1<<20, 100, 4, nil)
	good, err := os.ReadFile(filepath.Join(whole, record.DataFile))
	must(f, err)
	f.Add(good)
	f.Add(good[:3*4096])
	f.Fuzz(func(t *testing.T, b []byte) {
		a := record.NewAssembly()
		_ = salvage(bytes.NewReader(b), int64(len(b)), a.Add)
		if r, err := a.Run("fuzz"); err == nil {
			use(r)
		}
	})
}
