// Package model holds the plain values that the stages pass to each other:
// plans, steps, blockers, what a node holds, what is known of a node.
//
// Promise: values only. No clients, no disk, no clock, no logger; every value
// can be printed, compared and hashed. Nothing here knows the Kubernetes API.
package model
