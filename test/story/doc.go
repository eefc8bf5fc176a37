// Package story runs user stories as scripts: files in, commands, expected
// output and exit codes. The scripts in testdata use the real command line.
// A story of a cluster changes the objects of testdata/site.yaml, packs them into a support
// archive, and reads that: go test ./test/story -update writes the output that it expects.
// Stories that need a running cluster are in test/e2e.
package story
