// Package probes answers the kubelet's questions about the controller.
//
// Promise: /healthz answers from the first moment, also while no API server does,
// and says no when work is stuck, so that the kubelet starts the controller again
// only when that helps. /readyz says no until the controller has read what is in
// the API server; a replica that stands by is ready.
//
// Inputs: the age of the oldest look in progress, and what the start waits for.
// Caller: the controller.
package probes
