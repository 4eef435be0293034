package proctree

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestParents(t *testing.T) {
	tests := []struct {
		what  string
		procs []rsstest.Process
		want  []int // PIDs, from process 40 up
		err   error // of the last
	}{
		{
			what: "up to init, whose parent is 0",
			procs: []rsstest.Process{
				{PID: 1, Comm: "init"}, {PID: 20, Parent: 1, Comm: "slurmstepd"},
				{PID: 30, Parent: 20, Comm: "bash"}, {PID: 40, Parent: 30, Comm: "python3"},
			},
			want: []int{40, 30, 20, 1},
		},
		{
			what:  "the topmost process of a PID namespace",
			procs: []rsstest.Process{{PID: 30, Comm: "bash"}, {PID: 40, Parent: 30, Comm: "python3"}},
			want:  []int{40, 30},
		},
		{what: "no such process", want: []int{40}, err: os.ErrNotExist},
		{
			what:  "a parent that has ended or is hidden",
			procs: []rsstest.Process{{PID: 30, Parent: 20, Comm: "bash"}, {PID: 40, Parent: 30, Comm: "python3"}},
			want:  []int{40, 30, 20},
			err:   os.ErrNotExist,
		},
		{
			what: "a parent whose PID is another's by now",
			procs: []rsstest.Process{
				{PID: 1, Comm: "init"}, {PID: 30, Parent: 1, Start: 5000, Comm: "other"}, {PID: 40, Parent: 30, Comm: "python3"},
			},
			want: []int{40, 30},
			err:  errGone,
		},
		{
			what:  "a process that is its own parent",
			procs: []rsstest.Process{{PID: 40, Parent: 40, Comm: "python3"}},
			want:  slices.Repeat([]int{40}, maxParents+1),
			err:   errTooDeep,
		},
		{
			what: "a circle",
			procs: []rsstest.Process{
				{PID: 30, Parent: 40, Start: 7, Comm: "bash"}, {PID: 40, Parent: 30, Start: 7, Comm: "python3"},
			},
			want: append(slices.Repeat([]int{40, 30}, maxParents/2), 40),
			err:  errTooDeep,
		},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			tree := rsstest.Empty(t)
			for _, p := range tt.procs {
				tree.Put(p)
			}
			var got []int
			var last error
			for i, err := range Parents(tree.Proc, 40) {
				if got = append(got, i.ID.PID); err == nil && (i.Comm == "" || i.ID.Start == 0) {
					t.Errorf("not read: %+v", i)
				}
				last = err
			}
			if !slices.Equal(got, tt.want) || !errors.Is(last, tt.err) {
				t.Errorf("got %d, %v, want %d, %v", got, last, tt.want, tt.err)
			}
		})
	}
}

// The caller says what ends the walk.
func TestParentsReal(t *testing.T) {
	for i, err := range Parents("/proc", os.Getpid()) {
		must(t, err)
		if i.ID.PID == os.Getppid() {
			return
		}
	}
	t.Errorf("process %d, our parent, was not met", os.Getppid())
}
