// Package programs replaces the container runtime, its shims, runc, crictl and
// the network plugins by payloads of the bundle.
//
// Promise: only programs in the list below that are already on the node are replaced, each
// atomically, with a backup for Undo; Undo removes a plugin that was not there. A
// runtime restarts and must answer over CRI again. Containers run through that restart;
// those that do not are named. A payload for another architecture is refused.
//
// SandboxUpdater sets the runtime's sandbox image. The image is on the node first; refit
// writes one drop-in of its own and asks the runtime for the resulting configuration
// before it restarts it. A runtime that ignores the drop-in keeps its old configuration,
// and the step fails. Running pods keep their sandbox; new ones get the new image.
//
// Inputs: Host, payloads by the names in the step's parameters (program/NAME and
// cni/plugins, each with the planned digest). Outputs: files in the path and /opt/cni/bin.
// Callers: the engine, the agent's node facts (Fields).
package programs
