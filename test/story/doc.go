// Package story runs user stories as scripts: files in, commands, expected
// output and exit codes. The scripts in testdata use the real command line.
// Stories that need a cluster are in test/e2e.
package story
