package alert

import (
	"encoding/json"
	"time"
)

// SendCommand is the command of rsswardend that carries a [Request]. It reads it
// from standard input and writes an [Answer] to standard output, as one line.
const SendCommand = "send"

// MostRequest bounds a request as it is written, in bytes.
const MostRequest = 1 << 20

// Request is all that such a process is told.
type Request struct {
	URL string `json:"url"`
	// Token goes into the header Authorization; TokenFile has it in its first line.
	Token     string            `json:"token,omitempty"`
	TokenFile string            `json:"token_file,omitempty"`
	Bodies    []json.RawMessage `json:"bodies"` // posted in turn
	Timeout   time.Duration     `json:"timeout_ns"`
}

// Answer says what came of it.
type Answer struct {
	Taken  int           `json:"taken"`            // how many of the bodies, from the first on
	Status int           `json:"status,omitempty"` // HTTP's, of the last
	Retry  bool          `json:"retry,omitempty"`  // the same may be taken later
	Later  time.Duration `json:"later_ns,omitempty"`
	Error  string        `json:"error,omitempty"` // without a secret
}
