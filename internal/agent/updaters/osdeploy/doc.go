// Package osdeploy moves the node's OS to an image: stage it, restart, observe, and wait
// until the node is Ready.
//
// Promise: done means that the image is booted, by its digest, with the wanted kernel
// arguments, and that the next boot is into it too. With it the kubelet is healthy, and the
// API server reports the node Ready. What was booted before is on disk before anything
// changes. A failure says what happened: the host answered "unchanged", it came up on the
// old image, or a person rolled back on the node itself. No failure is retried without a
// request, and refit does not undo a person's rollback.
//
// Undo boots what was booted before. So does the step itself if the node is not Ready with
// the image in time. That decision is on disk before the rollback starts. From then on the
// step only rolls back, also after a restart of the agent or the machine.
//
// Inputs: Host (the driver of this node, images by digest, the boot, the kubelet).
// Output: another boot. Callers: engine, the agent's facts.
package osdeploy
