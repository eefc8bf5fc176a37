// Package explain turns facts into one view: the progress of the update, what it
// waits for and why, and what the user can do next.
//
// Promise: pure, and the only source of headlines. The command line, the
// conditions and the status page show the same words because they show this
// view. Progress counts only observed nodes as done.
//
// Inputs: Facts, plain values read from the API. Output: View. Callers: the
// command line (refit status, refit apply), render.
package explain
