package leader

import (
	"encoding/json"
	"errors"
	"io/fs"
)

// firedName is the file in which the leader keeps what who leads next must know to
// do nothing twice. It goes with the directory.
const firedName = "fired"

// Keep lays data, a JSON value of at most 64 KiB, down for who leads next.
func (p *Post) Keep(data json.RawMessage) error { return p.write(firedName, data) }

// Kept returns what a leader kept last, nil for nothing.
func (p *Post) Kept() (data json.RawMessage, err error) {
	err = p.read(firedName, &data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}
