//go:build endurance

package main_test

import (
	"fmt"
	"testing"
)

// TestEnduranceTwoNodes is TestTwoNodesFourRanks ten times, and as often with nobody
// killed.
func TestEnduranceTwoNodes(t *testing.T) {
	s := rankNodes(t)
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { s.train(t, i%2 == 1) })
	}
}
