package capidiff

import (
	"fmt"

	"github.com/Masterminds/semver/v3"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/distribution"
)

// VersionMove returns why a Kubernetes version cannot be moved in place from one value to
// the other, "" if it can. A claim is about both values: an updater that does 1.35 to 1.36
// need not do 1.34 to 1.36.
func VersionMove(from, to string) string {
	if from == "" {
		return "the Machine names no version that it has now"
	}
	if to == "" {
		return "no version is wanted"
	}
	f, err := semver.NewVersion(from)
	if err != nil {
		return fmt.Sprintf("%q is no version", from)
	}
	t, err := semver.NewVersion(to)
	if err != nil {
		return fmt.Sprintf("%q is no version", to)
	}
	if why, _ := distribution.MoveProblem(from, to); why != "" {
		return "the node cannot move to " + to + ": " + why
	}
	switch minors := int64(t.Minor()) - int64(f.Minor()); {
	case f.Major() != t.Major():
		return fmt.Sprintf("%s to %s crosses a major version", from, to)
	case t.LessThan(f), componentversion.LessKubernetes(to, from):
		return fmt.Sprintf("%s is older than %s: Kubernetes is not downgraded in place", to, from)
	case minors > 1:
		return fmt.Sprintf("%s to %s skips a minor version: Kubernetes moves one at a time", from, to)
	}
	return ""
}
