// Package confined runs code that is not trusted, and reads its output: Output runs
// another program, RunUnprivileged runs this program once more to parse untrusted bytes.
//
// Promise of Output: the program runs as nobody, without capabilities or a way to gain
// any, in namespaces of its own: no network, no host process visible, a read-only root
// with only the program and the given files. A program that is not a static ELF sees the
// host's programs and libraries too, read-only. Its time and output are bounded; nothing
// of it is left when Output returns.
//
// Promise of RunUnprivileged: the process has the user and group nobody (by number: no
// passwd entry is needed) and no other group, no capability and no way to gain any
// (no_new_privs), an empty environment, one open file next to its pipes, no file system
// where the kernel has Landlock, and bounds of memory, CPU time and answer. It ends at
// the deadline. A crashed or hijacked process costs its answer only: the caller verifies
// every form of it. An agent that is not root has no privileges to drop; then only the
// bounds hold.
//
// Inputs: a program, arguments, small files or one open file. Outputs: standard output,
// or an error. Callers: internal/agent/host/kube, internal/agent/bundlestore;
// cmd/refit-agent has the other side of RunUnprivileged.
package confined
