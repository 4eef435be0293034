// Package trust has no program: its tests hold what is promised to the tests that
// show it. The cases that are known to have broken such programs are in
// cases_test.go, each with the tests that show what becomes of it here, or with the
// reason why it cannot be had. What happens to the job, the record and the alerts
// when a part of ours fails is in promises_test.go, each row with the tests that make
// the part fail; package supervisor's documentation and docs/promises.md show that table. The
// claims of SECURITY.md name the tests that show them, and its table of dependencies is
// compared with what is linked. A test that is named and not there fails them.
package trust
