// Package staticpod gives a static pod of this node another build of its image: it writes
// the image into the pod's manifest and waits until the kubelet runs it.
//
// Promise: only the image changes in the manifest, byte for byte, and only tag and digest
// change in the image. The updater writes it only if the node's runtime has the image under
// that very name, so that the kubelet pulls nothing. A pod that is not ready in its time
// gets its old manifest back, without a request to the API server, which may be reached
// through this very pod. A manifest that others have changed meanwhile stays as it is. The
// static pods of kubeadm (etcd, API server, controller manager, scheduler) are refused:
// they are versioned, and updater kubeadm upgrades them.
//
// Inputs: Host, the step's parameters (Params). Outputs: the manifest. Caller: engine.
package staticpod
