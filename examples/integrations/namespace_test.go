package integrations_test

import (
	"path/filepath"
	"regexp"
	"testing"
)

var checksum = regexp.MustCompile(`(?m)^checksum ([0-9a-f]{32})$`)

// TestTrimInContainer: in a container with PID numbers of its own, which no hook works
// in, --trim auto trims from outside, and the data are what they are without.
func TestTrimInContainer(t *testing.T) {
	t.Parallel()
	need(t, []string{"bwrap"}, "torch", "lmdb")
	p := newPlace(t, "testdata/apptainer", "../train/train.py", "../train/data.py")
	training := []string{python, "train.py", "--data", p.file("lmdb"), "--records", "2000", "--record-bytes", "65536",
		"--workers", "2", "--persistent", "--epochs", "2", "--step-ms", "10"}
	bare := p.start(training...)
	if status := bare.ends(); status != 0 {
		t.Fatalf("status %d\n%s", status, &bare.stderr)
	}
	r := p.start(append([]string{"rsswarden", "run", "--limit", "600M", "--at", "none", "--at", "70%:trim", "--trim", "auto", "--record", "none", "--",
		filepath.Join(p.dir, "apptainer"), "exec", "--pid", "image.sif"}, training...)...)
	want, status := checksum.FindStringSubmatch(bare.stdout.String()), r.ends()
	got := checksum.FindStringSubmatch(r.stdout.String())
	if status != 0 || want == nil || got == nil || got[1] != want[1] {
		t.Errorf("status %d, checksum %v, bare %v\n%s", status, got, want, &r.stderr)
	}
	freed := 0.0
	for _, e := range p.events() {
		if matches(e, "event=loader what=trimmed by=ptrace") {
			bytes, _ := e["freed_bytes"].(float64) // not there where it is 0
			freed += bytes
		}
	}
	if freed < 64<<20 {
		t.Errorf("%.0f bytes given back\n%s", freed, &r.stderr)
	}
	t.Logf("%.0f MiB given back", freed/(1<<20))
}
