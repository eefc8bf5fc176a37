// Package cri asks a container runtime over CRI what it has and what runs. What
// CRI reports is the proof that images are there and pinned, whatever was written
// elsewhere. It changes nothing but what two calls say: Stop, Pull.
//
// Inputs: the runtime's socket. Outputs: images with their names, digests and
// pins; the containers of static pods; the image file system. Callers: the
// agent halves of pin and load, the updaters.
package cri
