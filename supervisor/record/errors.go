package record

import (
	"errors"
	"fmt"
)

var errVanished = errors.New("its file was taken away")

func wrapWrite(dir string, err error) error {
	return fmt.Errorf("cannot write record %s, it ends here: %w", dir, err)
}
