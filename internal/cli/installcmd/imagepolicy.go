package installcmd

import (
	"fmt"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/imageproof"
)

// maxPolicy bounds a policy, and each file that it names.
const maxPolicy = 1 << 20

// readImagePolicy reads the policy for the hosts, with the keys of the files that it names: hosts do not
// have these. nil without one. Only a host with the stick loads images, and so verifies them.
func readImagePolicy(path string, hosts []host) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	loads := false
	for _, h := range hosts {
		loads = loads || h.device != ""
	}
	if !loads {
		return nil, console.UsageErrorf("--image-policy is for hosts that load images from a stick: name them with --ssh HOST:DEVICE")
	}
	text, err := fsutil.ReadSmall(path, maxPolicy)
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--image-policy: %w", err))
	}
	if text, err = yaml.YAMLToJSONStrict(text); err == nil {
		text, err = imageproof.EmbedFiles(text, func(name string) ([]byte, error) {
			if !filepath.IsAbs(name) { // relative to the policy's directory
				name = filepath.Join(filepath.Dir(path), name)
			}
			return fsutil.ReadSmall(name, maxPolicy)
		})
	}
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--image-policy %s: %w", path, err))
	}
	return text, nil
}
