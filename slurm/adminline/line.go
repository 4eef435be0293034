// Package adminline is the format of what is kept of a job in the accounting: one line in its
// AdminComment, as jobstats writes it, which jobstats and reportseff read:
// "JS1:" and the base64 of the gzip of a JSON object. rsswardend adds a key of its own.
package adminline

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Line is what AdminComment says of a job. It holds all of its nodes.
type Line struct {
	Nodes map[string]Node `json:"nodes"`
	// Seconds is how long the job had run when the line was written; jobstats writes it at the
	// job's end, rsswardend while it runs.
	Seconds int64 `json:"total_time"`
	GPUs    int   `json:"gpus"`
	// Own is nil in a line of jobstats.
	Own *Own `json:"rsswarden,omitempty"`
}

// Node is what a job had and used on a node. What is not known is not in the line.
type Node struct {
	Limit uint64 `json:"total_memory,omitempty"` // bytes
	// Peak is in bytes. Of jobstats it is that of RSS and shared memory of the job's cgroup, of
	// rsswardend that of what reclaim cannot take back, as far as its looks saw it.
	Peak uint64 `json:"used_memory,omitempty"`
	// CPUs and CPUSeconds are both there or neither: reportseff reads them so.
	CPUs       int      `json:"cpus,omitempty"`
	CPUSeconds *float64 `json:"total_time,omitempty"`
}

// Own is what rsswardend adds.
type Own struct {
	V     int                `json:"v"` // 1
	Nodes map[string]OwnNode `json:"nodes"`
}

// OwnNode is what the rsswardend of a node adds.
type OwnNode struct {
	At int64 `json:"at"` // when it was read, in seconds since 1970
	// By is the rsswardend that read it, "PID.START".
	By       string `json:"by,omitempty"`
	OOMKills uint64 `json:"oom_kills,omitempty"`
	// Cache is the highest charge in bytes, as far as looks saw it, beyond what reclaim cannot
	// take back: page cache.
	Cache uint64 `json:"cache,omitempty"`
}

const prefix = "JS1:"

// Bounds: Slurm keeps 65,535 bytes of a comment, and a line is read from whoever wrote it.
const (
	maxLine = 65535
	maxJSON = 8 << 20
)

// ErrOther is wrapped by the error of [Decode] where a comment is no line of this format, and
// ErrEmpty where jobstats wrote that it knows nothing of the job: "JS1:Short", "JS1:None".
var (
	ErrOther = errors.New("not a line of jobstats or rsswardend")
	ErrEmpty = errors.New("jobstats knows nothing of this job")
)

// Encode makes a line, the same of equal values. It fails where Slurm would cut it.
func Encode(l Line) (string, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("cannot encode the line of a job: %w", err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(b)
	if err = errors.Join(err, z.Close()); err != nil {
		return "", fmt.Errorf("cannot pack the line of a job: %w", err)
	}
	s := prefix + base64.StdEncoding.EncodeToString(packed.Bytes())
	if len(s) > maxLine {
		return "", fmt.Errorf("cannot keep the line of a job with %d nodes: %d bytes, Slurm keeps %d", len(l.Nodes), len(s), maxLine)
	}
	return s, nil
}

// Decode reads a line of jobstats or of [Encode].
func Decode(s string) (Line, error) {
	var l Line
	packed, ours := strings.CutPrefix(strings.TrimSpace(s), prefix)
	switch {
	case !ours:
		return l, ErrOther
	case packed == "Short" || packed == "None":
		return l, ErrEmpty
	}
	b, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return l, fmt.Errorf("%w: %w", ErrOther, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(z, maxJSON))
	}
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err != nil {
		return Line{}, fmt.Errorf("%w: %w", ErrOther, err)
	}
	return l, nil
}
