package main

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

// writeJSON writes a value for programs, which people read on a terminal all the same.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(text.JSON(b.Bytes()))
	return err
}
