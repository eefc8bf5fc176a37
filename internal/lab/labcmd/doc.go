// Package labcmd is the command line of refit-lab: real clusters on this machine, for trying
// and testing. It is a program of its own, so that users of refit do not download a lab.
//
// Promise: standard output carries the answer only, progress goes to standard
// error; a command run in a node passes its exit status on.
//
// Caller: cmd/refit-lab, which calls [Main].
package labcmd
