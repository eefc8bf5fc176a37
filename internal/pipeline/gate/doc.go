// Package gate decides whether an update may start: a chain of named checks,
// each of which asks one question about the whole cluster.
//
// Promise: pure. Every check is asked and every verdict returned, in the order
// of the chain and then by node, so that a person sees all that is wrong at
// once. Nothing has been changed on any node before the gate is open.
//
// Input: Input, gathered by the controller. Output: Result. Caller: the
// controller. Adding a check is one function and one line in Checks.
package gate
