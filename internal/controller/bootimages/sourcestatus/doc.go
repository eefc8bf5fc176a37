// Package sourcestatus computes the status of MachineSources and the summary of their
// policy: the images that nodes were installed from, and the versions that an image is
// too old for.
//
// Promise: pure. Every source is counted once. A node with a Machine belongs to that
// machine's source; a node selector matches only nodes without one. Only nodes that
// joined after a declaration can contradict it. The rules of every stream that a policy
// names count, also of streams that are not used yet.
//
// Inputs: MachineSources, their policy, nodes as their agents report them, streams, the
// time. Outputs: status fields, findings, blocked targets, a sentence. Caller:
// controller/bootimages.
package sourcestatus
