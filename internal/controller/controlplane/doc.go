// Package controlplane observes the control plane of the cluster: whether the static pods
// that kubeadm versions run the wanted release and are Ready, and for how long the API
// server is unavailable while nodes move.
//
// Promise: it reads from the API server, never from a cache. The downtime meter probes
// once a second, each time on a new connection, so a connection that died with the old API
// server does not count. It measures from where the controller runs, only while nodes
// move; a measurement that was not written is lost with the process.
//
// Inputs: an uncached client, the configuration of the API server. Outputs:
// rollout.ControlPlane, reasons to wait, Downtime. Callers: controller/clusterupdates,
// controller/imagetracks.
package controlplane
