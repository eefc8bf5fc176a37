package install

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// maxPolicy bounds a policy, and each file that it names.
const maxPolicy = 1 << 20

// RefusedImagesError names images without the signature that a rule wants.
type RefusedImagesError struct{ Refused []imageproof.Refusal }

func (e *RefusedImagesError) Error() string {
	texts := make([]string, 0, len(e.Refused))
	for _, r := range e.Refused {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, "; ") + ". Nothing was loaded or installed"
}

// checkImages compares refit's images in a bundle with the rules for signatures: those of a
// policy file, and those that this node read from its API server before. Without rules all pass.
func checkImages(o Options, f *bundlereader.File, now time.Time) error {
	images, err := ownImages(f)
	if err != nil {
		return err
	}
	conf := o.Config
	if conf.StateDir == "" {
		conf.StateDir = o.Places.at(agentconfig.DefaultStateDir)
	}
	demands := imageproof.NewDemands(authority.StoredImageRules(conf.Path(authority.File), func(statefile.Problem) {}))
	policy := &imageproof.Policy{}
	if o.ImagePolicy != "" {
		if policy, err = readPolicy(o.ImagePolicy); err != nil {
			return fmt.Errorf("image policy %s: %w", o.ImagePolicy, err)
		}
	}
	if !slices.ContainsFunc(images, func(i imageproof.Image) bool {
		return o.ImagePolicy != "" || demands.For(i.Repository)
	}) {
		return nil
	}
	entries, err := signatures(f, images)
	if err != nil {
		return err
	}
	refused := append(policy.Check(images, entries, now), demands.Check(images, entries, now)...)
	if len(refused) > 0 {
		return &RefusedImagesError{refused}
	}
	return nil
}

// readPolicy reads a policy in YAML or JSON. Files that it names are relative to its directory.
func readPolicy(path string) (*imageproof.Policy, error) {
	text, err := fsutil.ReadSmall(path, maxPolicy)
	if err != nil {
		return nil, err
	}
	if text, err = yaml.YAMLToJSONStrict(text); err != nil {
		return nil, err
	}
	return imageproof.ParseFile(text, func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		return fsutil.ReadSmall(name, maxPolicy)
	})
}

// ownImages are refit's images in a bundle, with the manifests of an index that the bundle has.
func ownImages(f *bundlereader.File) (out []imageproof.Image, err error) {
	m := f.Header().Metadata
	for i := range m.Images {
		img := &m.Images[i]
		if img.Group != bundle.GroupRefit {
			continue
		}
		x := imageproof.Image{Name: img.Name, Repository: pin.Repository(img.Name), Digest: img.Digest}
		raw, err := readManifest(f, img.Digest)
		if err != nil {
			return nil, err
		}
		x.Platforms = slices.DeleteFunc(imageproof.PlatformManifests(raw), func(d string) bool {
			return !slices.ContainsFunc(img.Blobs, func(b int) bool { return m.Blobs[b].Digest == d })
		})
		out = append(out, x)
	}
	return out, nil
}

// maxManifest is more than registries accept.
const maxManifest = 8 << 20

func readManifest(f *bundlereader.File, digest string) ([]byte, error) {
	r, err := bundleBlobs{f}.Open(digest)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxManifest))
}

// signatures reads the archive of signatures in a bundle; a bundle may have none.
func signatures(f *bundlereader.File, images []imageproof.Image) ([]imageproof.Entry, error) {
	p := f.Header().PayloadByName(imageproof.PayloadName, "linux/"+runtime.GOARCH)
	if p == nil {
		return nil, nil
	}
	r, err := bundleBlobs{f}.Open(p.Digest)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	names := map[string]bool{}
	for _, i := range images {
		names[i.Name] = true
	}
	entries, err := imageproof.ReadSignatures(r, names)
	if err != nil {
		return nil, fmt.Errorf("the signatures in the bundle cannot be read: %w", err)
	}
	return entries, nil
}
