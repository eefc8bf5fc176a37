// Package install installs the agent on a machine: its binary, its unit and its
// configuration. From a bundle it also loads refit's own image, so that the controller can
// start without a registry.
//
// Promise: it may be repeated at any time and then changes only what differs; what
// is not refit's is not touched; every byte from the bundle is compared before
// it counts. Images that a rule for signatures refuses are not loaded: nothing is installed then.
// Uninstall removes what Install made, and pins only on request.
//
// OnHost does the same from a privileged pod (with hostPID) onto the node the pod
// runs on, where images can be pulled. The pod only installs and updates the host
// service; no part that the node needs runs in the pod.
//
// Inputs: Options. Outputs: files, a running service, a Report. Caller:
// cmd/refit-agent.
package install
