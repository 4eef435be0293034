package loader

import (
	"fmt"
	"path/filepath"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// Owner returns who made a run directory, and whether that process lives: then
// its watcher speaks with the loaders, and nobody else may. The directory must
// be this user's and of this boot and PID namespace.
func Owner(dir string) (owner rss.ProcID, lives bool, err error) {
	if err := nodedir.CheckOwn(dir); err != nil {
		return owner, false, fmt.Errorf("cannot use run directory: %w", err)
	}
	data, _, err := readSmall(filepath.Join(dir, identityFile))
	if err != nil {
		return owner, false, fmt.Errorf("cannot read run directory: %w", err)
	}
	i, err := parseIdentity(data)
	if err != nil {
		return owner, false, fmt.Errorf("cannot read run directory: %w", err)
	}
	me, err := self()
	if err != nil {
		return owner, false, fmt.Errorf("cannot read run directory: %w", err)
	}
	if i.BootID != me.BootID || i.PIDNS != me.PIDNS {
		return owner, false, fmt.Errorf("cannot use run directory %s: it is of another boot or PID namespace", dir)
	}
	start, err := startTime("/proc", i.Owner.PID)
	return i.Owner, err == nil && start == i.Owner.Start, nil
}
