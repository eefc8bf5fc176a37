// Package console is the contract of all commands with a terminal and with scripts: exit
// codes, checks of arguments and output formats, confirmation, and progress.
//
// Promise: every command returns an error, and Execute turns it into the exit code that
// scripts rely on. A wrong argument or format is a usage error that lists the valid ones.
// Confirm starts only after "y" or "yes". Without a terminal it does not ask, and the
// error names the flag to use instead.
//
// Inputs: flags, a terminal, views. Outputs: text, and errors with an exit code. Callers:
// internal/cli and its command groups, refit-lab.
package console
