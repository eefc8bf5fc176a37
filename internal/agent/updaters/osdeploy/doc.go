// Package osdeploy moves the node's OS to an image: stage, restart, look, be well.
//
// Promise: done means that the image is booted, by its digest, with the kernel
// arguments that are wanted, that the next boot is into it too, and that with it the
// kubelet is healthy and the API server calls the node Ready. What was there is
// on disk before anything is changed. A host that answered "unchanged", that came
// back on the old image, or that somebody took back on the node itself, is a failure
// that says which of them it was; none is tried again by itself, and a person's
// rollback is not undone. Undo boots what was there before. So does the step itself
// if the node is not well with the image within its time: that is on disk before the
// node goes back, and then it goes back and nowhere else, whoever restarts it.
//
// Inputs: Host (the driver of this node, images by digest, the boot, the kubelet).
// Output: another boot. Callers: run, the agent's facts.
package osdeploy
