package bundlecmd

import (
	"fmt"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/imageproof"
)

const (
	policyVersion = "refit.dev/imageproofpolicy/v1"
	policyKind    = "ImageProofPolicy"
	maxPolicy     = 1 << 20
)

// policyFile is the file of --verify.
type policyFile struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Rules      []imageproof.RuleSpec `json:"rules"`
}

// readPolicy reads the policy of --verify. Unknown fields are errors.
func readPolicy(path string) (*imageproof.Policy, error) {
	text, err := fsutil.ReadSmall(path, maxPolicy)
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--verify: %w", err))
	}
	p, err := parsePolicy(text, filepath.Dir(path))
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--verify %s: %w", path, err))
	}
	return p, nil
}

func parsePolicy(text []byte, dir string) (*imageproof.Policy, error) {
	var f policyFile
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, err
	}
	if f.APIVersion != policyVersion || f.Kind != policyKind {
		return nil, fmt.Errorf("it has apiVersion %q and kind %q, want %s and %s", f.APIVersion, f.Kind, policyVersion, policyKind)
	}
	return imageproof.ParseRules(f.Rules, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) { // relative to the policy's directory
			path = filepath.Join(dir, path)
		}
		return fsutil.ReadSmall(path, maxPolicy)
	})
}
