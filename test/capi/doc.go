// Package capi runs Cluster API's own controllers against refit's extension. Core, the
// kubeadm bootstrap and control-plane providers and the in-memory infrastructure
// provider, v1.13.4, are built from their Go modules. They run with a real etcd and API
// server, in a network namespace of their own that has only loopback.
//
// What is real: Cluster API's controllers, webhooks and kinds; the API server;
// refit's controller as two processes with the rights of an installation, its
// extension server, planner, gate and rollout.
//
// What is SIMULATED: the machines. In-memory machines have no host, so their
// Nodes, kubelets and refit agents are played through the API by this test
// (simulated_linux_test.go). What an agent does on a real host is shown by test/e2e.
//
// Run by `make test-capi` (root; the first run builds Cluster API).
package capi
