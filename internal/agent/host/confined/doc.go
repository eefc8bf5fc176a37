// Package confined runs code that is not trusted, and reads its output: Output runs
// another program. RunUnprivileged and StreamUnprivileged run this program once more to parse
// untrusted bytes.
//
// Promise of Output: the program runs as user nobody, without capabilities or a way to gain
// any. It has namespaces of its own: no network, no visible host process, a read-only root
// with only the program and the given files. A program that is not a static ELF sees the
// host's programs and libraries too, read-only. Its time and output are bounded; nothing
// of it is left when Output returns.
//
// Promise of RunUnprivileged and StreamUnprivileged: the process runs as user nobody (by number: no
// passwd entry is needed) and as group nobody only. It has no capability and cannot gain any (no_new_privs),
// an empty environment, the given open files next to its pipes, and no file system where the kernel
// has Landlock. Memory, CPU time and output are limited, the output of a stream by its caller. It ends
// at the deadline. A crashed or hijacked process costs its answer only: the caller verifies every form
// of it. An agent that is not root has no privileges to drop; then only the
// bounds hold.
//
// Inputs: a program, arguments, small files or open files. Outputs: standard output,
// or an error. Callers: internal/agent/host/kube, internal/agent/bundlestore;
// cmd/refit-agent has the other side of both.
package confined
