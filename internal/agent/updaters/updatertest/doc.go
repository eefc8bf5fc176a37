// Package updatertest is the conformance test of updaters: it tests on a simulated node what
// every updater promises (see package updaters).
//
// Inputs: a function that makes a Fixture. Output: test failures. Callers: the
// tests of every updater.
package updatertest
