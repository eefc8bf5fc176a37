// Package explain turns facts into one view: how far the update is, what it
// waits for and why, and what a person can do next.
//
// Promise: pure, and the only place where a headline is made. The command
// line, the conditions and the status page show the same words because they
// show this view. Progress never lies: done counts only what was observed.
//
// Inputs: Facts, plain values read from the API. Output: View. Callers: the
// command line (refit status, refit apply), render.
package explain
