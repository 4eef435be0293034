package doctor

import (
	"errors"
	"syscall"
	"testing"
)

func TestTaskPrologCheck(t *testing.T) {
	for _, test := range []struct {
		facts prologFacts
		want  want
	}{
		{prologFacts{}, want{OK, "beside each task", "", ""}},
		{prologFacts{Program: "/opt/rsswarden", Err: syscall.ENOENT}, want{Off, "/opt/rsswarden: no such file", "bin=", ""}},
		{prologFacts{InTask: true, Watcher: 7}, want{OK, "process 7", "", ""}},
		{prologFacts{InTask: true, Bare: errors.New("too little")}, want{Limited, "bare: too little", "rsswarden run", ""}},
		{prologFacts{InTask: true}, want{Limited, "no watcher", "slurmd", ""}},
	} {
		test.want.check(t, prologCheck(&test.facts))
	}
}
