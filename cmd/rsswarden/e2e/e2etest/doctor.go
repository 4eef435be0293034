package e2etest

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/doctor"
)

// Examined is what `doctor --json` printed, and what finds a check in it.
func Examined(t testing.TB, stdout string) (r doctor.Report, of func(name string) doctor.Check) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v: %q", err, stdout)
	}
	return r, func(name string) doctor.Check {
		i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Name == name })
		if i < 0 {
			t.Errorf("no check %s in %s", name, stdout)
			return doctor.Check{}
		}
		return r.Checks[i]
	}
}
