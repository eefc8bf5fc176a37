// Package audit compares what runs with what should: one table for pods,
// static pods, network agents, the sandbox image and the operating system.
//
// Promise: pure. Each image of each workload has one line with its worst state, a
// message and a fix. The first line of the report is the verdict. imageIDs are
// compared as images, not as text: an index, its manifests and their configurations
// are one image. A difference that cannot be proven is unknown, never stale.
//
// Inputs: Facts; what a restart would do comes in as a function, tag schemes too.
// Outputs: Report. Callers: internal/cli/tagscmd.
//
// Files: report.go lines and verdict, group.go what is one line, states.go the
// words, node.go sandbox and operating system.
package audit
