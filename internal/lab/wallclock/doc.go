// Package wallclock sets the wall clock of one running program forward or back, so
// that tests see what a clock does that NTP sets, or that is dead.
//
// Promise: after Shift the program reads a CLOCK_REALTIME that differs from the
// machine's by that much; its monotonic clock, its timers and the clocks of all other
// programs stay right. The program is not built for it: Shift patches the code of the
// kernel's clock_gettime that is mapped into the process (vDSO), by which Go programs
// read their clocks. Programs that it starts have the right time, and so do the
// kernel's own times (of files, of certificates that others make).
//
// Inputs: a process, a duration. Linux on amd64, root. Callers: tests.
package wallclock
