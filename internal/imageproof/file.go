package imageproof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Version and kind of a policy in a file.
const (
	FileVersion = "refit.dev/imageproofpolicy/v1"
	FileKind    = "ImageProofPolicy"
)

// ParseFile reads a policy of refit bundle create --verify and refit-agent install
// --image-policy, as JSON. Unknown fields are errors.
func ParseFile(text []byte, files Files) (*Policy, error) {
	f, err := decodeFile(text)
	if err != nil {
		return nil, err
	}
	return ParseRules(f.Rules, files)
}

// EmbedFiles returns a policy as JSON with the keys and roots of the files that it names, for a machine
// that does not have these. The names of the files stay in messages.
func EmbedFiles(text []byte, files Files) ([]byte, error) {
	f, err := decodeFile(text)
	if err != nil {
		return nil, err
	}
	if _, err := ParseRules(f.Rules, files); err != nil {
		return nil, err
	}
	for _, r := range f.Rules {
		for _, specs := range r.pems() {
			for i := range specs {
				if err := specs[i].embed(files); err != nil {
					return nil, err
				}
			}
		}
	}
	return json.Marshal(f)
}

// pems are the lists of keys and roots of a rule.
func (r *RuleSpec) pems() (out [][]PEMSpec) {
	if r.Cosign != nil {
		out = append(out, r.Cosign.Keys)
	}
	if r.Notation != nil {
		out = append(out, r.Notation.Roots)
	}
	return out
}

func (s *PEMSpec) embed(files Files) error {
	text, err := s.read(files)
	if err != nil {
		return err
	}
	*s = PEMSpec{Name: s.label(), PEM: string(text)}
	return nil
}

// policyFile is a policy in a file.
type policyFile struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Rules      []RuleSpec `json:"rules"`
}

func decodeFile(text []byte) (*policyFile, error) {
	var f policyFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more than one document in it")
	}
	if f.APIVersion != FileVersion || f.Kind != FileKind {
		return nil, fmt.Errorf("it has apiVersion %q and kind %q, want %s and %s", f.APIVersion, f.Kind, FileVersion, FileKind)
	}
	return &f, nil
}
