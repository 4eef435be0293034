package slurm

import (
	"fmt"
	"slices"
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
