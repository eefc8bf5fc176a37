// Package updatecmd is what a person does to an update that is there: pause, resume,
// retry, hold a node, release it, accept a risk, say how nodes are emptied.
//
// Promise: each verb is one small change of one object, safe to say twice; what
// comes of it is the controller's business, and refit status shows it. Nothing
// here waits.
//
// Inputs: names. Output: one sentence. Caller: the command line.
package updatecmd
