// Package structure holds the tests that keep the house in order: which
// package may import which, and how big a package may be.
package structure
