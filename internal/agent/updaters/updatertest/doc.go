// Package updatertest is the conformance test of updaters: what every one of
// them promises (see package updaters) is tried here on a simulated node.
//
// Inputs: a function that makes a Fixture. Output: test failures. Callers: the
// tests of every updater.
package updatertest
