// Package disktest gives tests real file systems that are small, full or
// read-only, and damages files the way a power cut does.
//
// Promise: every file system is mounted for one test and gone after it. Without
// root, or where mounting is forbidden, the test is skipped with the reason.
// Inputs: a test, a size. Outputs: a directory. Callers: tests of everything that
// writes files.
package disktest
