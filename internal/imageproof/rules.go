package imageproof

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// RuleSpec is a rule as people write it: in a file of refit bundle create --verify, and in a
// TrustPolicy.
type RuleSpec struct {
	Images string `json:"images"`
	// Accept is Unsigned, or empty for rules with keys or roots.
	Accept string `json:"accept,omitempty"`
	// Signed is Image (the default) or EachPlatform.
	Signed   string        `json:"signed,omitempty"`
	SignedAs []string      `json:"signedAs,omitempty"`
	Cosign   *CosignSpec   `json:"cosign,omitempty"`
	Notation *NotationSpec `json:"notation,omitempty"`
}

// CosignSpec names public keys of cosign.
type CosignSpec struct {
	Keys []PEMSpec `json:"keys"`
}

// NotationSpec names roots and subjects of certificates.
type NotationSpec struct {
	Roots      []PEMSpec `json:"roots"`
	Identities []string  `json:"identities"`
}

// PEMSpec is PEM, or a file that has it. A TrustPolicy has no files.
type PEMSpec struct {
	Name string `json:"name,omitempty"`
	File string `json:"file,omitempty"`
	PEM  string `json:"pem,omitempty"`
}

// label names it in messages.
func (s PEMSpec) label() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.File != "":
		return s.File[strings.LastIndexByte(s.File, '/')+1:]
	}
	return "in the policy"
}

// Files reads a file that a policy names.
type Files func(path string) ([]byte, error)

func (s PEMSpec) read(files Files) ([]byte, error) {
	switch {
	case (s.File == "") == (s.PEM == ""):
		return nil, errors.New("name a file, or write the text under pem")
	case s.PEM != "":
		return []byte(s.PEM), nil
	case files == nil:
		return nil, errors.New("files are not read here: write the text under pem")
	}
	return files(s.File)
}

// Rule reads keys and certificates. files may be nil.
func (r *RuleSpec) Rule(files Files) (Rule, error) {
	out := Rule{Images: r.Images, SignedAs: r.SignedAs, AcceptUnsigned: r.Accept == "Unsigned", EachPlatform: r.Signed == "EachPlatform"}
	switch {
	case r.Accept != "" && r.Accept != "Unsigned":
		return out, fmt.Errorf("accept: %q: write Unsigned, or leave it out", r.Accept)
	case r.Signed != "" && r.Signed != "Image" && r.Signed != "EachPlatform":
		return out, fmt.Errorf("signed: %q: write Image or EachPlatform", r.Signed)
	}
	if r.Cosign != nil {
		if err := r.Cosign.read(files, &out); err != nil {
			return out, err
		}
	}
	if r.Notation != nil {
		if err := r.Notation.read(files, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (c *CosignSpec) read(files Files, out *Rule) error {
	for _, s := range c.Keys {
		text, err := s.read(files)
		if err != nil {
			return fmt.Errorf("cosign key %s: %w", s.label(), err)
		}
		k, err := ParseKey(s.label(), text)
		if err != nil {
			return fmt.Errorf("cosign key %s: %w", s.label(), err)
		}
		out.Keys = append(out.Keys, k)
	}
	return nil
}

func (n *NotationSpec) read(files Files, out *Rule) error {
	for _, s := range n.Roots {
		text, err := s.read(files)
		if err != nil {
			return fmt.Errorf("notation root %s: %w", s.label(), err)
		}
		certs, err := ParseRoots(text)
		if err != nil {
			return fmt.Errorf("notation root %s: %w", s.label(), err)
		}
		out.Roots = append(out.Roots, certs...)
	}
	for _, s := range n.Identities {
		id, err := ParseIdentity(s)
		if err != nil {
			return err
		}
		out.Identities = append(out.Identities, id)
	}
	return nil
}

// ParseRules makes a policy of rules and validates it. The error names the rule.
func ParseRules(specs []RuleSpec, files Files) (*Policy, error) {
	p := &Policy{}
	for i := range specs {
		rule, err := specs[i].Rule(files)
		if err != nil {
			return nil, fmt.Errorf("rule %d (images: %s): %w", i+1, specs[i].Images, err)
		}
		p.Rules = append(p.Rules, rule)
	}
	return p, p.Validate()
}

// NamedRules are the rules of one TrustPolicy.
type NamedRules struct {
	Name  string     `json:"name"`
	Rules []RuleSpec `json:"rules"`
}

// Demands are the rules of all TrustPolicies. Each policy counts by itself: an image must meet the
// most specific rule of every policy that has a rule for its repository.
type Demands struct{ policies []demand }

type demand struct {
	name   string
	policy Policy
}

// NewDemands reads the rules. A rule that cannot be read refuses what its pattern covers.
func NewDemands(all []NamedRules) Demands {
	var d Demands
	for _, n := range all {
		one := demand{name: n.Name}
		for i := range n.Rules {
			rule, err := n.Rules[i].Rule(nil)
			if err == nil {
				err = rule.check()
			}
			if rule.invalid = err; err != nil {
				rule.AcceptUnsigned = false
			}
			if CheckPattern(rule.Images) != nil {
				rule.Images = "*" // which images it is for is unknown
			}
			one.policy.Rules = append(one.policy.Rules, rule)
		}
		d.policies = append(d.policies, one)
	}
	return d
}

// demands reports whether the policy wants a signature of images of a repository.
func (d *demand) demands(repository string) bool {
	r := d.policy.RuleFor(repository)
	return r != nil && !r.AcceptUnsigned
}

// For reports whether a policy wants a signature of images of a repository.
func (d Demands) For(repository string) bool {
	for i := range d.policies {
		if d.policies[i].demands(repository) {
			return true
		}
	}
	return false
}

// EachPlatform reports whether a policy wants signatures of the manifests of an index.
func (d Demands) EachPlatform(repository string) bool {
	for i := range d.policies {
		if r := d.policies[i].policy.RuleFor(repository); r != nil && r.EachPlatform {
			return true
		}
	}
	return false
}

// Check returns the images that a policy refuses, at most one refusal each. Images of
// repositories without a rule pass.
func (d Demands) Check(images []Image, entries []Entry, now time.Time) []Refusal {
	var out []Refusal
	refused := map[string]bool{}
	for i := range d.policies {
		p := &d.policies[i]
		var mine []Image
		for _, img := range images {
			if !refused[img.Name] && p.demands(img.Repository) {
				mine = append(mine, img)
			}
		}
		for _, r := range p.policy.Check(mine, entries, now) {
			if !refused[r.Image] {
				refused[r.Image] = true
				r.Message += " (TrustPolicy " + p.name + ")"
				out = append(out, r)
			}
		}
	}
	return out
}

// RefuseAll refuses images for one reason, for example because a bundle has no signatures at all.
func RefuseAll(images []Image, reason Reason, message string) []Refusal {
	out := make([]Refusal, 0, len(images))
	for _, img := range images {
		out = append(out, refusal(img, img.Digest, &Problem{reason, message}))
	}
	return out
}
