package bundlecmd

import (
	"fmt"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/imageproof"
)

const maxPolicy = 1 << 20

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
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	return imageproof.ParseFile(text, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) { // relative to the policy's directory
			path = filepath.Join(dir, path)
		}
		return fsutil.ReadSmall(path, maxPolicy)
	})
}
