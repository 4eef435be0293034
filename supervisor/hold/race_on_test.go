//go:build race

package hold

// The race detector maps more than any sensible RLIMIT_AS.
const raceDetector = true
