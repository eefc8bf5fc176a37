// Package apiclient is the agent's access to the API server: it watches one NodeUpdate,
// reads Contents by name and writes one status. It uses the node's own identity and
// rereads the kubelet's kubeconfig whenever it changes, so it follows renewed
// certificates and moved endpoints. Get asks a single path, also of the API server on
// this node.
//
// Promise: every call ends; an unavailable, slow or throttling API server costs only time.
// "No such object" differs from "no answer". "No answer" is the same text for every cause;
// the cause is wrapped.
//
// Inputs: a kubeconfig path, the node's name, the node's static pods. Outputs: API
// objects, bodies of answers. Callers: the agent's wiring (through its interface API),
// internal/agent/service.
package apiclient
