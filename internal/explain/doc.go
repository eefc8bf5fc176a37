// Package explain turns facts into one view: the progress of the update, what it
// waits for and why, and what the user can do next.
//
// Promise: pure, and the only source of headlines. The command line, the
// conditions and the status page show the same words because they show this
// view. Progress counts only observed nodes as done.
//
// A Receipt is what an update did, for an office without a line to the cluster: small,
// signed if there is a key, as JSON or as text with the same content. Any changed byte of a
// signed receipt is refused. AddReceipts adds up those of many sites; each counts once.
//
// Inputs: Facts, plain values read from the API; files of receipts. Outputs: View, Receipt,
// Receipts. Callers: the command line (refit status, refit apply, refit receipt), render.
package explain
