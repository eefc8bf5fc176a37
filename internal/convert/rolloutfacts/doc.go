// Package rolloutfacts turns API objects into the values that the rollout looks at:
// pools with their windows, the marks and records on nodes, what came of runs.
//
// Promise: it reads objects and nothing else; no client, no clock. What cannot
// be read (a time zone that does not exist, a mark that lost its end) is never
// taken for "no limit": the pool starts nothing, the node is marked anew.
//
// Inputs: objects of the API package, Nodes. Outputs: rollout's values. Callers:
// controller/clusterupdates, and the command line, which shows how a plan will roll out.
package rolloutfacts
