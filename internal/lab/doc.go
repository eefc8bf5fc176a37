// Package lab makes real Kubernetes clusters on one Linux machine, and takes
// them away again.
//
// Promise: real kubeadm creates the cluster of a lab: etcd (with fsync), API server,
// controllers and scheduler as static pods, kube-proxy and CoreDNS. Its nodes have the
// real systemd as pid 1, a real container runtime (containerd or CRI-O) and kubelet, and
// their own disk and /dev. No node has a route out, and the lab counts packets that try.
// The machine's own network gets one listener on the loopback address. A lab can be
// deleted at any time, also after a crash; only objects of the lab are removed.
//
// A lab may have a look-alike of k3s or RKE2 instead (Options.Distribution): one program with
// their places and units that starts the same real parts, see components/_lookalike.
//
// Every lab has a network of its own, so several labs use the same addresses.
// 10.88.0.1 is the switch, 10.88.0.11 and up the nodes, 10.244.N.0/24 the pods of
// node N, 10.96.0.0/16 the services.
//
// Size: the methods of one type, Lab, and what makes one; what stands alone has
// been taken out (machine, components, cgroups, loop, mains, scenario).
//
// Inputs: [Options], root, the Debian packages of internal/lab/components, Go.
// Called by internal/lab/labcmd, the demo, and tests.
//
//	l, err := lab.Up(ctx, lab.Options{Name: "demo", Version: "v1.35.4", Progress: log.Println})
//	defer lab.Down(context.Background(), "demo")
//	err = l.Exec(ctx, "n2", nil, os.Stdout, os.Stderr, "systemctl", "status", "kubelet")
//
// A program that imports this package can be started again by it under other
// names (argument zero) to become a supervisor, a node or a command in a node;
// see entrances.go.
package lab
