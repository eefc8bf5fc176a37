package bundlecmd

import (
	"errors"
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
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Rules      []policyRule `json:"rules"`
}

type policyRule struct {
	Images   string   `json:"images"`
	Accept   string   `json:"accept,omitempty"`
	Signed   string   `json:"signed,omitempty"`
	SignedAs []string `json:"signedAs,omitempty"`
	Cosign   *struct {
		Keys []pemSource `json:"keys"`
	} `json:"cosign,omitempty"`
	Notation *struct {
		Roots      []pemSource `json:"roots"`
		Identities []string    `json:"identities"`
	} `json:"notation,omitempty"`
}

// pemSource is PEM in the policy or in a file, relative to the policy's directory.
type pemSource struct {
	Name string `json:"name,omitempty"`
	File string `json:"file,omitempty"`
	PEM  string `json:"pem,omitempty"`
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
	p := &imageproof.Policy{}
	for i, r := range f.Rules {
		rule, err := r.rule(dir)
		if err != nil {
			return nil, fmt.Errorf("rule %d (images: %s): %w", i+1, r.Images, err)
		}
		p.Rules = append(p.Rules, rule)
	}
	return p, p.Validate()
}

func (r policyRule) rule(dir string) (imageproof.Rule, error) {
	out := imageproof.Rule{Images: r.Images, SignedAs: r.SignedAs, AcceptUnsigned: r.Accept == "Unsigned", EachPlatform: r.Signed == "EachPlatform"}
	switch {
	case r.Accept != "" && r.Accept != "Unsigned":
		return out, fmt.Errorf("accept: %q: write Unsigned, or leave it out", r.Accept)
	case r.Signed != "" && r.Signed != "Image" && r.Signed != "EachPlatform":
		return out, fmt.Errorf("signed: %q: write Image or EachPlatform", r.Signed)
	}
	if r.Cosign != nil {
		for _, s := range r.Cosign.Keys {
			k, err := s.key(dir)
			if err != nil {
				return out, fmt.Errorf("cosign key %s: %w", s.label(), err)
			}
			out.Keys = append(out.Keys, k)
		}
	}
	if r.Notation != nil {
		if err := r.notation(dir, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (r policyRule) notation(dir string, out *imageproof.Rule) error {
	for _, s := range r.Notation.Roots {
		text, err := s.read(dir)
		if err != nil {
			return fmt.Errorf("notation root %s: %w", s.label(), err)
		}
		certs, err := imageproof.ParseRoots(text)
		if err != nil {
			return fmt.Errorf("notation root %s: %w", s.label(), err)
		}
		out.Roots = append(out.Roots, certs...)
	}
	for _, s := range r.Notation.Identities {
		id, err := imageproof.ParseIdentity(s)
		if err != nil {
			return err
		}
		out.Identities = append(out.Identities, id)
	}
	return nil
}

// label names the source in messages.
func (s pemSource) label() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.File != "":
		return filepath.Base(s.File)
	}
	return "in the policy"
}

func (s pemSource) key(dir string) (imageproof.Key, error) {
	text, err := s.read(dir)
	if err != nil {
		return imageproof.Key{}, err
	}
	return imageproof.ParseKey(s.label(), text)
}

func (s pemSource) read(dir string) ([]byte, error) {
	switch {
	case (s.File == "") == (s.PEM == ""):
		return nil, errors.New("name a file, or write the text under pem")
	case s.PEM != "":
		return []byte(s.PEM), nil
	case filepath.IsAbs(s.File):
		return fsutil.ReadSmall(s.File, maxPolicy)
	}
	return fsutil.ReadSmall(filepath.Join(dir, s.File), maxPolicy)
}
