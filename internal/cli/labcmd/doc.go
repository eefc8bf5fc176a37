// Package labcmd is `refit lab`: real clusters on this machine, for trying and testing.
//
// Promise: standard output carries the answer only, progress goes to standard
// error; a command run in a node passes its exit status on.
//
// Called by internal/cli, which hangs [New] under the root command.
package labcmd
