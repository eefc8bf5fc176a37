// Package kernel manages the Linux kernel objects of a lab and its tests: control groups,
// loop devices, file locks, inotify limits, network namespaces, and the wall clock of one
// process.
//
// Promise: only the named object is removed. A control group is created in every hierarchy
// of the machine (legacy, hybrid or unified), or an error names where it is missing. The
// processes of a lab are always in its group, so a lab is removed even when all other
// records are lost. A loop device is detached only from the file that the caller names. A
// lock has one holder, and ends with it. The inotify limit is raised while there are labs
// and restored with the last one. A network is in namespaces of its own and ends with its
// processes. It has a rate for each host, but no delay and no loss, because many kernels
// have no netem. ShiftClock changes CLOCK_REALTIME of one process: the monotonic clock,
// timers and other processes keep their time.
//
// Inputs: names, files, processes. Outputs: handles and errors. Needs root; ShiftClock needs
// amd64. Callers: internal/lab, the end-to-end tests, bench.
package kernel
