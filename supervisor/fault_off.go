//go:build !rsswarden_faults

package supervisor

// faultPoint does nothing in a program that people use. See fault_on.go.
func faultPoint() {}
