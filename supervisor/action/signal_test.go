package action

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestParseSignals(t *testing.T) {
	for in, want := range map[string]uint64{
		"SigCgt:\t0000000180004203\n":                                           0x180004203,
		"Name:\tSigCgt\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000800\n": 1 << 11,
		"SigCgt:\tffffffffffffffff":                                             1<<64 - 1,
	} {
		if got, ok := parseSignals([]byte(in), "SigCgt:"); got != want || !ok {
			t.Errorf("%q: %x, %v; want %x", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "SigCgt:\n", "SigCgt:\tx\n", "SigCgt:\t10000000000000000\n", "SigIgn:\t0\n"} {
		if got, ok := parseSignals([]byte(in), "SigCgt:"); ok {
			t.Errorf("%q: %x", in, got)
		}
	}
}

func FuzzParseSignals(f *testing.F) {
	f.Add([]byte("Name:\tx\nSigCgt:\t0000000180004203\n"))
	f.Fuzz(func(t *testing.T, b []byte) { parseSignals(b, "SigCgt:") })
}

func TestCatches(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	defer signal.Stop(c)
	if caught, err := Catches("/proc", os.Getpid(), syscall.SIGUSR2); !caught || err != nil {
		t.Errorf("USR2 of this process: %v, %v", caught, err)
	}
	if caught, err := Catches("/proc", 1<<22+1, syscall.SIGUSR2); caught || err == nil {
		t.Errorf("of a process that is not there: %v, %v", caught, err)
	}
	dir := t.TempDir()
	wardentest.NoError(t, os.Mkdir(filepath.Join(dir, "7"), 0o700))
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "7", "status"), []byte("Name:\tx\nSigCgt:\t8000000000000001\n"), 0o600))
	for sig, want := range map[syscall.Signal]bool{1: true, 2: false, 64: true, 0: false, 65: false} {
		if caught, err := Catches(dir, 7, sig); caught != want || err != nil {
			t.Errorf("signal %d: %v, %v; want %v", sig, caught, err, want)
		}
	}
}
