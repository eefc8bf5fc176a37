package componentversion

import "runtime/debug"

// refit is set by the build; a plain `go build` leaves the development version.
var refit = "0.1.0-dev"

// Refit is the semantic version of this build of refit, without a leading v.
func Refit() string { return refit }

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
