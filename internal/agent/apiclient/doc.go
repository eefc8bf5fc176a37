// Package apiclient is the agent's narrow view of the API server: one NodeUpdate
// is watched, Contents are read by name, one status is written. It speaks with
// the node's own identity and rereads the kubelet's kubeconfig whenever it
// changes, so renewed certificates and moved endpoints are followed.
//
// Promise: an API server that is away, slow or throttling costs nothing but
// time; every call ends. Inputs: a kubeconfig path, the node's name. Outputs:
// API objects. Caller: the agent's wiring (through its interface API).
package apiclient
