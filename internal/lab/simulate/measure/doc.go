// Package measure counts for a simulation: writes as the API server counts them,
// looks as the controller counts them, memory and processor time as the kernel
// does.
//
// Input: metrics pages, process ids. Output: plain values for the result.
// Caller: internal/lab/simulate.
package measure
