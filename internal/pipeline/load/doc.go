// Package load decides what of a bundle this node needs and whether there is
// room for it. It is pure.
//
// Promise: only blobs that the hold list names are wanted; an image or payload
// that the bundle does not have as the list says is a verdict, not a guess; the
// room is compared per file system, and names that share one are added up.
//
// Inputs: bundle.Header, model.HoldList, Room values. Outputs: Want, verdicts.
// Callers: load/agent, the agent's wiring.
package load
