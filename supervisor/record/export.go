package record

import (
	"fmt"
	"io"
	"os"

	"github.com/bmatsuo/lmdb-go/lmdb"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// Export writes what the file of a record holds to w, in frames. It is for a child
// process alone, after [Confine]: LMDB on a damaged file may end it by SIGBUS or abort,
// and on one that was made for it do anything.
func Export(f *os.File, w io.Writer) error {
	info, err := f.Stat()
	if err == nil {
		err = checkMeta(f, info.Size())
	}
	if err != nil {
		return fmt.Errorf("cannot open record: %w", err)
	}
	env, err := lmdb.NewEnv()
	if err != nil {
		return fmt.Errorf("cannot open record: %w", err)
	}
	defer env.Close()
	// No process writes it, else the watcher would have answered: no lock is needed.
	if err := env.Open(nodedir.FDPath(f), lmdb.Readonly|lmdb.NoLock|lmdb.NoSubdir, 0); err != nil {
		return fmt.Errorf("cannot open record: %w", err)
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
		return fmt.Errorf("cannot read record: %w", err)
	}
	return nil
}
