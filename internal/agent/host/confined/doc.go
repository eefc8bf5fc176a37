// Package confined runs a program that is not trusted yet, and reads what it prints.
//
// Promise: the program runs as nobody, without capabilities or a way to new ones, in
// namespaces of its own: no network, no process of the host to see, a read-only root
// with nothing in it but the program and the given files. A program that is no static
// ELF sees the host's programs and libraries too, read-only. Its time and its output
// are bounded; nothing of it is left when Output returns.
//
// Inputs: a program, arguments, small files; the caller is root. Outputs: what it wrote
// to its standard output, or why there is none. Callers: internal/agent/host/kube.
package confined
