// Package cgroups keeps the control groups of a lab: one group per lab, one
// below it per node, with the same path in every hierarchy the machine has
// (legacy, hybrid or unified).
//
// Promise: a group is created in all hierarchies or an error says where not;
// removing takes away exactly the named group and what is below it; every
// process that a lab ever started is in its group, so the group is the record
// by which a lab is taken down even when all else is lost.
//
// Inputs: the mounts of this process. Called by internal/lab and its parts.
//
//	err := cgroups.Create("refit-lab-demo/n1")
//	err = cgroups.Join("refit-lab-demo/n1") // this process, in every hierarchy
package cgroups
