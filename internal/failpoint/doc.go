// Package failpoint names the lines of a program at which tests cut its power.
//
// Promise: a released program does nothing at a point, and nothing outside of it can
// change that. Tests of one process set a hook; tests of whole nodes use an agent that
// is built with the tag failpoint, which package kill ends at a point.
//
// Inputs: a name of the list below. Outputs: none. Callers: store, load, pin, run
// engine, updaters, the agent's loop. The kill table of the end-to-end tests walks
// through Names.
package failpoint
