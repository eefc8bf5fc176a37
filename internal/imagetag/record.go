package imagetag

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

const (
	// RecordType is the artifact type of a release record, and the media type of its one file.
	RecordType = "application/vnd.refit.release-record.v1+json"
	// MaxRecord is the size of the largest record that is read, in bytes.
	MaxRecord = 64 << 10

	recordVersion = "refit.dev/release-record/v1"
	recordKind    = "ReleaseRecord"
	maxFixes      = 64
)

// ReleaseRecord is what a publisher says of an image, and its tags cannot say: an OCI
// artifact whose subject is the image. It is not signed by itself, so it takes rights away and
// gives none.
type ReleaseRecord struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Repository and Digest of the image.
	Repository string `json:"repository"`
	Digest     string `json:"digest"`
	// LongTag names the image for good, Version is that of the application.
	LongTag string `json:"longTag,omitempty"`
	Version string `json:"version,omitempty"`
	// From is the digest that the image follows.
	From string `json:"from,omitempty"`
	// Case of the update: 1, 2, 3 or 4a.
	Case string `json:"case,omitempty"`
	// Severity: security, recommended or disruptive.
	Severity string `json:"severity,omitempty"`
	// Fixes are the vulnerabilities that the image closes, for example CVE-2026-1234.
	Fixes []string `json:"fixes,omitempty"`
	// ManifestsChange: the manifests of the application change with the image.
	ManifestsChange bool `json:"manifestsChange,omitempty"`
}

// NewRecord fills in version and kind.
func NewRecord(r ReleaseRecord) (ReleaseRecord, error) {
	r.APIVersion, r.Kind = recordVersion, recordKind
	return r, r.check()
}

var fixName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$`)

func (r ReleaseRecord) check() error {
	if r.APIVersion != recordVersion || r.Kind != recordKind {
		return fmt.Errorf("it is %.60q %.60q, not %s %s", r.APIVersion, r.Kind, recordVersion, recordKind)
	}
	if !slices.Contains([]string{"", "security", "recommended", "disruptive"}, r.Severity) {
		return fmt.Errorf("severity %.60q is none of security, recommended and disruptive", r.Severity)
	}
	if len(r.Fixes) > maxFixes {
		return fmt.Errorf("it names %d fixes, at most %d are read", len(r.Fixes), maxFixes)
	}
	for _, f := range r.Fixes {
		if !fixName.MatchString(f) {
			return fmt.Errorf("fix %.80q is no name like CVE-2026-1234", f)
		}
	}
	return nil
}

// ParseRecord reads the record of an image. A record of another image is refused: everyone who
// can push can attach one.
func ParseRecord(data []byte, digest string) (ReleaseRecord, error) {
	var r ReleaseRecord
	if len(data) > MaxRecord {
		return r, fmt.Errorf("release record of %s: it has %d bytes, at most %d are read", digest, len(data), MaxRecord)
	}
	err := json.Unmarshal(data, &r)
	if err == nil {
		err = r.check()
	}
	if err == nil && r.Digest != digest {
		err = errors.New("it is about another image")
	}
	if err != nil {
		return r, fmt.Errorf("release record of %s: %w", digest, err)
	}
	return r, nil
}
