// Package startuptaints writes what package startuptaint decided: the taint of a node that does
// not hold yet what it is to hold, and the note of the store by which it was let in.
//
// Promise: of a node's taints only refit's own is added or taken off, of its
// annotations only the note; a write is based on the node as it was seen and is
// refused if it changed since. Every change is an event of the node.
//
// Inputs: a node, an admit.Action. Callers: controller/nodedistribution; poolstatus counts the
// taints.
package startuptaints
