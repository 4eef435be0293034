// Package hold is the process between our parent and the user's
// command. The command runs as if it had been started bare, its end becomes
// ours, and nothing that happens to the watcher changes either. README.md says
// how, and what still differs; the twin tests compare the rest.
//
// The holder is one goroutine around poll(2), which allocates nothing while all is well and
// makes no call that a silent file server could keep. Its threads exist before the command.
package hold
