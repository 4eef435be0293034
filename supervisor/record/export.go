package record

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bmatsuo/lmdb-go/lmdb"
)

// Export writes what the record in dir holds to w, in frames. It is for a child
// process alone: LMDB on a damaged file may end it by SIGBUS or abort.
func Export(dir string, w io.Writer) error {
	path := filepath.Join(dir, dataFile)
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cannot open record: %w", err)
	}
	if err := checkFile(path, info.Size()); err != nil {
		return fmt.Errorf("cannot open record %s: %w", dir, err)
	}
	env, err := lmdb.NewEnv()
	if err != nil {
		return fmt.Errorf("cannot open record %s: %w", dir, err)
	}
	defer env.Close()
	// Nobody writes it, else the watcher would have answered: no lock is needed,
	// and the record may lie where this user cannot write.
	if err := env.Open(path, lmdb.Readonly|lmdb.NoLock|lmdb.NoSubdir, 0); err != nil {
		return fmt.Errorf("cannot open record %s: %w", dir, err)
	}
	var dbi lmdb.DBI
	err = env.View(func(txn *lmdb.Txn) (err error) {
		dbi, err = txn.OpenRoot(0)
		return err
	})
	if err == nil {
		err = export(env, dbi, w, func() {})
	}
	if err != nil {
		return fmt.Errorf("cannot read record %s: %w", dir, err)
	}
	return nil
}
