// Package hunt looks for harm from outside: it starts the built programs as users
// do and knows nothing of their insides.
//
//   - TestTwin runs commands bare and under "rsswarden run" and compares exit status,
//     standard output, standard error and the files they leave.
//   - TestInject makes single system calls of the holder fail, with strace, and
//     expects the status of the bare command.
//   - TestAttack... is another user of the node (uid 1002) who attacks a victim's run
//     (uid 1001) or what root types.
//   - TestCgroupView asks for the limits in namespaces and under mounts of all kinds.
//
// "make hunt" runs all of it. "go test" runs every attack, and a part of the twin and
// inject cases that takes less than three minutes.
package hunt
