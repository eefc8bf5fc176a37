// Package unprivileged runs this very program once more, as a process that can do nothing
// but compute: for bytes that nobody vouches for.
//
// Promise: the process has the user and group nobody (by number: no passwd entry is
// needed) and no other group, no capability, no way to gain any (no_new_privs), an empty
// environment, one open file beside its pipes, no file system where the kernel has
// Landlock, and bounds of memory, processor time and answer. It ends at the deadline. A
// process that crashes or is taken over costs its answer, nothing else: who asked checks
// every form of it. A program of somebody else is run by package confined.
//
// An agent that is not root has nothing to give away; then only the bounds hold.
//
// Inputs: arguments, an open file. Output: the answer's bytes. Callers: the agent, for
// headers of bundles (load/agent); cmd/refit-agent has the other side.
package unprivileged
