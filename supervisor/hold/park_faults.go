//go:build rsswarden_faults

package hold

// #cgo CFLAGS: -DRSSWARDEN_FAULTS
import "C"
