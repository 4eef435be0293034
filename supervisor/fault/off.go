//go:build !rsswarden_faults

package fault

// Point does nothing.
func Point(string) {}
