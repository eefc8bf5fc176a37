// Package imagekeeper makes a runtime hold and pin the images of the pin set, image by
// image as their blobs arrive, and keeps them so. It is the node half of stage pin.
//
// Promise: see package pin. Every change is read back over CRI before it is reported. The
// record of own pins is on disk before a pin is released and after one is made, so a crash
// leaves at worst a pin too many. RemoveUnused removes images that refit loaded itself, and no
// image that is pinned, used by a container, or named by others.
//
// Inputs: pin set, blobs of this node, a Runtime. Outputs: the runtime
// changed; Result for the node's status. Caller: the agent's wiring.
package imagekeeper
