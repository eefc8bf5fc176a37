// Package cmdutil has the common parts of all commands: exit codes, arguments and output
// formats, the client of the cluster, questions to the person at the terminal, and the
// manifests that commands read.
//
// Promise: every command returns an error, and Execute turns it into the exit code that
// scripts rely on. A wrong argument or format is a usage error with the valid ones.
// Confirm takes only "y" or "yes" for a yes; without a terminal nothing is asked, and the
// error names the flag. A folder of manifests is its .yaml, .yml and .json files.
//
// Inputs: flags, a kubeconfig, files, a terminal. Outputs: values and errors with an exit
// code. Callers: internal/cli and its command groups, refit-lab.
package cmdutil
