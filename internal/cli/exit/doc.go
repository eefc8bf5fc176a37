// Package exit gives errors of the command line an exit code.
//
// Promise: every command returns an error; the main function asks Code for the
// number that scripts rely on. Callers: internal/cli/*, cmd/*.
package exit
