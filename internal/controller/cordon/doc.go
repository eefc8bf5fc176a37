// Package cordon marks nodes that an update is at work on, cordons them, and
// gives them back.
//
// Promise: a mark and its cordon are one write, so that our cordon is never
// without its mark; what is written is based on what the API server has, and is
// refused if the node has changed since. A cordon of anybody else is left alone,
// also at the end.
//
// Inputs: a node's name, the mark, the record of a node that is done. Callers:
// controller/clusterupdates.
package cordon
