// Package confirm asks the person at the terminal before something is done that
// cannot be taken back by ending the command.
//
// Promise: only "y" or "yes" is a yes; whatever else is typed, a closed input and
// Ctrl-C are a no that says so, and Ctrl-C ends the command at once. Without a
// terminal nothing is asked, and the way out is named.
//
// Inputs: the context that Ctrl-C ends, a question. Output: nil for yes, an error with
// its exit code for no. Callers: refit apply, refit drill.
package confirm
