// Package docs tests the documentation.
//
// Promise: links resolve; shown commands exist with their flags; YAML on pages is
// a sample of config/samples; the reference of kinds, commands and JSON is what the
// program has.
//
// The generated pages are written by: go test ./test/docs -update
package docs
