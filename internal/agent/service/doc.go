// Package service puts an agent together from the real parts of a node:
// containerd, the API server, systemd, the kubelet. Caller: cmd/refit-agent.
package service
