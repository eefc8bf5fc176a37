// Package plans makes plans and keeps them as Contents.
//
// Promise: a plan is made anew when anything that the planner looks at changed,
// and only then; what is read back has the digest that was approved. A plan of
// any size is kept: one that does not fit an object is split into parts, which
// are written before what names them.
//
// Input: update.Input, Contents. Output: plans with their digests. Caller:
// controller/clusterupdates.
package plans
