// Package startuptaint decides when a node that joins, or that lost its store, takes pods:
// not before it has proven that it holds and pins all that it is to hold. It is pure.
//
// Promise: only refit's own taint is spoken of. A node that was let in once stays in
// while its store is the same, whatever it lacks for a while; a node that nobody
// asked about is left alone; what keeps a node out has an end that the node itself
// reaches, or goes when nobody asks for it any more.
//
// Input: Facts. Output: Action. Caller: controller/nodedistribution.
package startuptaint
