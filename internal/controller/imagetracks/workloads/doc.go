// Package workloads reads the workloads of an ImageTrack: which containers have
// its image, how they replace their pods, which budgets are over them, who owns
// them, and what their pods run.
//
// Promise: it reads only, from the API server and not from a cache. What a
// workload's own strategy stops at once is counted as its controller counts it.
// Workloads of a GitOps tool or of another controller are marked as such.
//
// Inputs: targets, a reader. Outputs: Workload. Caller: controller/imagetracks.
package workloads
