// Package updatecmd has the commands for an existing update: pause, resume, retry, hold
// a node, release it, accept a risk, set drain options.
//
// Promise: each command is one small, idempotent change of one object. The controller
// acts on it, and refit status shows the result. No command waits.
//
// Inputs: names. Output: one sentence. Caller: the command line.
package updatecmd
