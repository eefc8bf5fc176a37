package install

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

const refitImage = "registry.example/refit:1"

// ownBundle is a bundle with an image of refit, and signatures unless that is nil.
func ownBundle(t *testing.T, archive []byte) (path, digest string) {
	t.Helper()
	s := bundletest.Tiny()
	s.Images[0].Name, s.Images[0].Group = refitImage, bundle.GroupRefit
	if archive != nil {
		s.Payloads = append(s.Payloads, bundletest.Payload{Name: imageproof.PayloadName, Content: archive})
	}
	path = filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(path, bundletest.Bytes(t, s), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, i := range bundletest.Make(t, s).Meta.Images {
		if i.Name == refitImage {
			digest = i.Digest
		}
	}
	return path, digest
}

// copied is a policy as refit install copies it to a host: with its keys, without their files.
func copied(t *testing.T, policy string) string {
	t.Helper()
	text, err := os.ReadFile(policy)
	if err == nil {
		text, err = imageproof.EmbedFiles(text, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(filepath.Dir(policy), name)) })
	}
	path := filepath.Join(t.TempDir(), "copy")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func policyFile(t *testing.T, images, key string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"apiVersion": imageproof.FileVersion, "kind": imageproof.FileKind,
		"rules": []any{map[string]any{"images": images, "cosign": map[string]any{"keys": []any{map[string]any{"file": "release.pub"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"policy.yaml": string(text), "release.pub": key} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "policy.yaml")
}

// The first installation refuses an image of refit without the signature that the policy wants,
// before anything of the machine is touched.
func TestTheFirstInstallationNeedsTheSignaturesOfThePolicy(t *testing.T) {
	_, image := ownBundle(t, nil)
	right, other := bundletest.NewPublisher(t), bundletest.NewPublisher(t)
	const repository = "registry.example/refit"
	for name, tc := range map[string]struct {
		archive []byte
		images  string
		word    imageproof.Reason
	}{
		"a valid signature":            {right.Archive(refitImage, image, repository, image), "registry.example/*", ""},
		"no signature":                 {nil, "registry.example/*", imageproof.Missing},
		"another key":                  {other.Archive(refitImage, image, repository, image), "registry.example/*", imageproof.WrongKey},
		"another digest":               {right.Archive(refitImage, image, repository, "sha256:"+strings.Repeat("0", 64)), "*", imageproof.WrongDigest},
		"a signature of another image": {right.Archive(refitImage, image, "registry.example/tool", image), "*", imageproof.Replayed},
		"no rule for the repository":   {right.Archive(refitImage, image, repository, image), "quay.example/*", imageproof.NoRule},
	} {
		t.Run(name, func(t *testing.T) {
			p := root(t)
			path, _ := ownBundle(t, tc.archive)
			file := policyFile(t, tc.images, right.PublicKey())
			o := Options{Places: p, NoStart: true, Printf: discard(t), From: path, ImagePolicy: copied(t, file)}
			if tc.word == "" {
				f, err := openBundle(path, "")
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				for _, o.ImagePolicy = range []string{file, o.ImagePolicy} {
					if err := checkImages(o, f, time.Now()); err != nil {
						t.Error(err)
					}
				}
				return
			}
			_, err := Install(t.Context(), o)
			var refused *RefusedImagesError
			switch {
			case !errors.As(err, &refused) || len(refused.Refused) != 1 || refused.Refused[0].Reason != tc.word:
				t.Errorf("%v, want %s", err, tc.word)
			case !strings.Contains(err.Error(), refitImage) || !strings.Contains(err.Error(), "Nothing was loaded or installed"):
				t.Errorf("the message is %q", err)
			}
			if left, err := os.ReadDir(p.Root); err != nil || len(left) != 0 {
				t.Errorf("%v, %v after a refusal", left, err)
			}
		})
	}
}

func TestAnImagePolicyThatCannotBeRead(t *testing.T) {
	p := root(t)
	if _, err := Install(t.Context(), Options{Places: p, NoStart: true, Printf: discard(t), ImagePolicy: "p"}); err == nil || !strings.Contains(err.Error(), "--from") {
		t.Errorf("a policy without a bundle: %v", err)
	}
	path, _ := ownBundle(t, nil)
	for name, text := range map[string]string{"another kind": "apiVersion: v1\nkind: Secret\n", "no YAML": "{", "an unknown field": "apiVersion: " + imageproof.FileVersion + "\nkind: " + imageproof.FileKind + "\nrule: []\n",
		"a key that is not there": policyWithoutKey} {
		file := filepath.Join(t.TempDir(), "policy")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Install(t.Context(), Options{Places: p, NoStart: true, Printf: discard(t), From: path, ImagePolicy: file}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const policyWithoutKey = `apiVersion: refit.dev/imageproofpolicy/v1
kind: ImageProofPolicy
rules:
- images: "*"
  cosign:
    keys:
    - file: nowhere.pub
`
