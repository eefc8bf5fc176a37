// Package service builds an agent from the real parts of a node: the container runtime, the API
// server, systemd, the kubelet. Caller: cmd/refit-agent.
package service
