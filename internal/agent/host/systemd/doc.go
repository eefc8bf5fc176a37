// Package systemd starts, stops and inspects units through systemd's private socket (no
// message bus is needed), and runs commands in transient units, so that they outlive the
// process that started them.
//
// RecordCommand runs in such a unit and writes the command's output to a log file and
// its end to a result file. Promise: a result file is complete and synced, or missing. A
// missing one without a running unit means that the command was cut off (a shutdown, a
// power cut, kill -9).
//
// Inputs: unit names, argument lists, two paths. Outputs: states, log and result, errors
// with the unit's name, lines of the agent's journal. Callers: the updaters, refit-agent, refit-agent install.
package systemd
