// Package imagekeeper is the node half of pin: it makes a runtime hold and pin what
// the hold list says, image by image as their blobs arrive, and keeps it so.
//
// Promise: see package pin; what was done is read back over CRI before it is
// reported. The record of own pins is on disk before a pin is let go and after
// one is made, so a crash leaves at worst a pin too many.
//
// Inputs: hold list, blobs of this node, a Runtime. Outputs: the runtime
// changed; Result for the node's status. Caller: the agent's wiring.
package imagekeeper
