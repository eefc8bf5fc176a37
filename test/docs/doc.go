// Package docs tests the documentation: links resolve, shown commands exist
// with their flags, YAML on pages is a tested sample of config/samples, and the
// reference of kinds and commands is what the program has.
//
// The generated pages are written by: go test ./test/docs -update
package docs
