// Package version says which refit this is. The build sets it; a plain
// `go build` says the development version.
package version

import "runtime/debug"

var version = "0.1.0-dev"

// Version is the semantic version of this build, without a leading v.
func Version() string { return version }

// Commit is the revision the binary was built from, or "unknown".
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
