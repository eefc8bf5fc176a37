// Package failpoint names the lines of a program at which tests cut its power.
//
// Promise: a released program does nothing at a point, and nothing outside of it can
// change that. Tests of one process set a hook. Tests of whole nodes use an agent that
// is built with the tag failpoint and calls KillFrom; a test shows that no other program
// contains it.
//
// Inputs: a name of the list below; for KillFrom a file with a line name[:count] or
// name[:count] pause.
// Outputs: none, SIGKILL, or a pause. Callers: the stores, the updaters and the loops of the
// agent. The kill table of the end-to-end tests walks through Names.
package failpoint
