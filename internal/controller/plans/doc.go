// Package plans makes plans and stores them as Contents.
//
// Promise: it makes a new plan only when an input of the planner changed. A plan that it
// reads has the digest that was approved. A plan of any size is stored: one that does not
// fit into an object is split into parts, which are written before the list of them.
//
// Input: updateplan.Input, Contents. Output: plans with their digests. Caller:
// controller/clusterupdates.
package plans
