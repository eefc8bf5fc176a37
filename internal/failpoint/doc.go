// Package failpoint is how tests cut the power of a program at a named line.
//
// Promise: in normal use it does nothing and costs one file look-up at each
// point. A program dies by SIGKILL at a point when the environment says
// REFIT_FAILPOINT=name[:count], or when the file named by REFIT_FAILPOINT_FILE
// (the agent uses <state>/failpoint) holds such a line. The file is removed
// before the process dies, so that the restarted program goes on; the count-th
// pass kills.
//
// Inputs: a name of the list below. Outputs: none. Callers: store, load, pin,
// run engine, updaters, the agent's loop. The kill table of the end-to-end
// tests walks through Names.
package failpoint
