// Package audit compares what runs with what should: one table for pods,
// static pods, network agents, the sandbox image and the operating system.
//
// Promise: pure. One line for each image of each workload, with one state word
// (the worst of all that hold), the sentence behind it and what to do; the first
// line of the report is the verdict. imageIDs are compared as images, not as
// text: an index, its manifests and their configurations are one image, and what
// cannot be proven is unknown, never stale.
//
// Inputs: Facts; what a restart would do comes in as a function, tag schemes too.
// Outputs: Report. Callers: internal/cli/tagscmd.
//
// Files: report.go lines and verdict, group.go what is one line, states.go the
// words, node.go sandbox and operating system.
package audit
