// Package exit adds exit codes to errors of the command line.
//
// Promise: every command returns an error; Code returns the number for scripts.
// Callers: internal/cli/*, cmd/*.
package exit
