// Package install makes a machine a member: it puts the agent's binary, its
// unit and its configuration in place, and brings refit's own image in from a
// bundle, so that the controller can start where there is no registry.
//
// Promise: may be repeated at any time and then changes only what differs; what
// is not refit's is not touched; every byte from the bundle is compared before
// it counts. Uninstall removes what Install made, and pins only when asked.
//
// OnHost does the same from a privileged pod (with hostPID) onto the node the pod
// runs on, where images can be pulled. The pod only installs and updates the host
// service; no part that the node needs runs in the pod.
//
// Inputs: Options. Outputs: files, a running service, a Report. Caller:
// cmd/refit-agent.
package install
