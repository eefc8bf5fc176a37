// Package bootclock has times that can be written to disk and compared by another
// process, whatever the wall clock does in between.
//
// Promise: a Stamp is a boot and a time of CLOCK_BOOTTIME, which nobody can set. The
// time between two stamps of one boot is exact; stamps of two boots have none.
// Inputs: a time of this process. Outputs: Stamp. Callers: updaters that wait over
// restarts of the agent.
package bootclock
