// Package fault is the seam by which tests have a part of the program fail where no
// real cause can be had: a bug of ours. It does nothing in a program that people use;
// with -tags rsswarden_faults, RSSWARDEN_FAULT says what fails, and where.
package fault
