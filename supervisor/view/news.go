package view

import "github.com/rsswarden/rsswarden/supervisor/event"

// News is what is to be reported, in this order: an [event.Found], an [event.LoaderSaid] or
// a [Cured], whose head the reporter fills in, a [Fault] or a [Line].
type News []any

// Fault is that a part of ours does not work. The command runs on.
type Fault struct {
	Part string
	Err  error
}

// Line is a line for people.
type Line struct {
	Kind string // lines of one kind are rationed; without a kind they are not
	Text string
	Warn bool // it is a warning; those with a kind are none
	// Once says that it is reported once for each pair of Once and Key.
	Once, Key string
}

// Cured is a cure and its words.
type Cured struct {
	event.Cure
	Text string
}

// Fault adds a fault, nil for none.
func (n *News) Fault(part string, err error) {
	if err != nil {
		*n = append(*n, Fault{part, err})
	}
}

// Add adds to what is to be told.
func (n *News) Add(more ...any) { *n = append(*n, more...) }
