// Package kubeapi asks the API server with the identity of this node's kubelet.
//
// Promise: a question takes seconds at most, and that the API server has no such object
// is told apart from that it gives no answer, which is the same text whatever the cause;
// the cause is behind it (errors.Is).
//
// Inputs: the kubelet's kubeconfig, the node's static pods, a path. Output: the body of
// the answer. Caller: internal/agent/service.
package kubeapi
