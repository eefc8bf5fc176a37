// Package staticpod gives a static pod of this node another build of the image
// that it has: it writes the image into the pod's manifest and waits until the
// kubelet runs it.
//
// Promise: of the manifest nothing but the image changes, byte for byte, and of
// the image nothing but tag and digest. It is written only when the node's
// runtime has the image under that very name, so that the kubelet fetches
// nothing. A pod that is not ready with it in its time gets its old manifest back,
// without asking anybody: what it does may be what the API server is reached
// through. A manifest that somebody else has changed meanwhile is left as it is.
// The static pods of kubeadm (etcd, API server, controller manager, scheduler)
// are refused: they are versioned, and updater kubeadm moves them.
//
// Inputs: Host, the step's parameters (Params). Outputs: the manifest. Caller:
// run.
package staticpod
