//go:build race

package store

// The race detector takes more memory and time than the reader of a record is given.
const raceDetector = true
