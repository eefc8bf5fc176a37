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
	var f struct {
		APIVersion string     `json:"apiVersion"`
		Kind       string     `json:"kind"`
		Rules      []RuleSpec `json:"rules"`
	}
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
	return ParseRules(f.Rules, files)
}
