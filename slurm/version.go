package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// AtLeast compares a version of Slurm, "23.11.4", with a release. An unknown version,
// the empty one among them, is older than any.
func AtLeast(version string, year, month, patch int) bool {
	var y, m, p int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &y, &m, &p); n < 2 {
		return false
	}
	return slices.Compare([]int{y, m, p}, []int{year, month, patch}) >= 0
}

// FindVersion asks scontrol for its version, "26.05.5", which asks no daemon.
func FindVersion(ctx context.Context, scontrol func(ctx context.Context, args ...string) ([]byte, error)) (string, error) {
	out, err := scontrol(ctx, "--version") // "slurm 22.05.8", "slurm-wlm 24.11.5"
	if err != nil {
		return "", err
	}
	words := strings.Fields(firstLine(out))
	if len(words) == 0 || !AtLeast(words[len(words)-1], 0, 0, 0) {
		return "", fmt.Errorf("scontrol --version: no version in %q", firstLine(out))
	}
	return words[len(words)-1], nil
}
