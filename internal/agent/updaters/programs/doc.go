// Package programs replaces the container runtime, its shims, runc, crictl and
// the network plugins by payloads of the bundle.
//
// Promise: only programs that are in the list below and on the node already are
// replaced, each in one stroke, the old one kept for Undo; a plugin that was not
// there is removed by Undo. A runtime is restarted and seen back over CRI;
// containers run through that, those that do not are named. A payload for another
// machine is refused.
//
// SandboxUpdater sets the runtime's sandbox image. The image is on the node first; refit
// writes one drop-in of its own and asks the runtime for the resulting configuration
// before it restarts it. A runtime that ignores the drop-in keeps its old configuration,
// and the step fails. Running pods keep their sandbox; new ones get the new image.
//
// Inputs: Host, payloads by the names in the step's parameters (program/NAME and
// cni/plugins, each with the digest that was planned). Outputs: files in the
// path and /opt/cni/bin. Callers: the engine, the agent's node facts
// (Fields).
package programs
