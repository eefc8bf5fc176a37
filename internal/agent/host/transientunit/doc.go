// Package transientunit is a command that outlives the process that started it: it runs in a
// unit of its own, under a small keeper process that writes its output to a log
// file and its end to a result file.
//
// Promise: a result file is whole or not there, and is synced; without one and
// without a running unit the command was cut off (a shutdown, a power
// cut, kill -9 of the keeper). Inputs: an argument list, two paths. Outputs: log, result. Callers:
// cmd/refit-agent (Keep), the updaters (Result, Tail).
package transientunit
