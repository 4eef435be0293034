//go:build endurance

package cgroup2

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
)

// TestEnduranceOldestKernel runs the cases on the oldest kernel that is promised.
func TestEnduranceOldestKernel(t *testing.T) { onKernels(t, []string{guest.Oldest()}) }
