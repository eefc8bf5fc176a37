// Package confirm asks the user at the terminal before an action that continues
// when the command ends.
//
// Promise: only "y" or "yes" is a yes. Any other input, a closed input and Ctrl-C are
// a no with a message, and Ctrl-C ends the command at once. Without a terminal it asks
// nothing and names the flag to use.
//
// Inputs: the context that Ctrl-C ends, a question. Output: nil for yes, an error with
// its exit code for no. Callers: refit apply, refit drill.
package confirm
