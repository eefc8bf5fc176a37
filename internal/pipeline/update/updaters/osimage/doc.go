// Package osimage moves the node's OS to an image: stage, restart, look.
//
// Promise: done means that the image is booted, by its digest, with the kernel
// arguments that are wanted, and that the next boot is into it too. What was there is
// on disk before anything is changed. A host that answered "unchanged", that came
// back on the old image, or that somebody took back on the node itself, is a failure
// that says which of them it was; none is tried again by itself, and a person's
// rollback is not undone. Undo boots what was there before.
//
// Inputs: Host (the driver of this node, images by digest, the boot). Output: another
// boot. Callers: run, the agent's facts.
package osimage
