package bootstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// GenericVersion is the apiVersion of the plain list.
const GenericVersion = "refit.dev/boot-images/v1"

// generic is the plain list for what is not CoreOS.
type generic struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind,omitempty"`
	Name       string     `json:"name,omitempty"`
	Release    string     `json:"release,omitempty"`
	Kubernetes string     `json:"kubernetes,omitempty"`
	Modified   *time.Time `json:"modified,omitempty"`
	// OwnReleases: an image without a release of its own is of an unknown one, not of
	// the list's.
	OwnReleases bool `json:"ownReleases,omitempty"`
	// Bundle is what the bundle says that brought it.
	Bundle *BundleVersions `json:"bundle,omitempty"`
	Images []genericImage  `json:"images"`
}

type genericImage struct {
	OSStream     string            `json:"osStream,omitempty"`
	Architecture string            `json:"architecture"`
	Platform     string            `json:"platform"`
	Region       string            `json:"region,omitempty"`
	Variant      string            `json:"variant,omitempty"`
	Version      string            `json:"version"`
	Release      string            `json:"release,omitempty"`
	Attributes   map[string]string `json:"attributes"`
	// Unavailable and Notice are the answers of a program that asked the platform.
	Unavailable string `json:"unavailable,omitempty"`
	Notice      string `json:"notice,omitempty"`
}

// parseGeneric is strict: a word that is not known is a mistake of a person.
func parseGeneric(data []byte) (*Stream, error) {
	var in generic
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return nil, fmt.Errorf("boot image stream: %w", err)
	}
	s := &Stream{Name: in.Name, Release: in.Release, Kubernetes: in.Kubernetes, OwnReleases: in.OwnReleases}
	if in.Modified != nil {
		s.Modified = *in.Modified
	}
	if in.Bundle != nil {
		s.Bundle = *in.Bundle
	}
	for n, i := range in.Images {
		arch, ok := Architecture(i.Architecture)
		if !ok {
			return nil, fmt.Errorf("boot image stream: images[%d]: architecture %q is not known", n, i.Architecture)
		}
		if i.Platform == "" || i.Version == "" || len(i.Attributes) == 0 {
			return nil, fmt.Errorf("boot image stream: images[%d]: platform, version and attributes are needed", n)
		}
		s.Images = append(s.Images, Image{Key: Key{OSStream: i.OSStream, Architecture: arch, Platform: i.Platform, Region: i.Region, Variant: i.Variant},
			Version: i.Version, Release: i.Release, Attributes: i.Attributes, Unavailable: i.Unavailable, Notice: i.Notice})
	}
	return s.finish()
}

// EncodeGeneric writes a stream as the plain list, for a site that cannot reach where
// it came from.
func EncodeGeneric(s *Stream) ([]byte, error) {
	out := generic{APIVersion: GenericVersion, Name: s.Name, Release: s.Release, Kubernetes: s.Kubernetes, OwnReleases: s.OwnReleases}
	if !s.Modified.IsZero() {
		at := s.Modified.UTC()
		out.Modified = &at
	}
	if s.Bundle != (BundleVersions{}) {
		out.Bundle = &s.Bundle
	}
	for _, i := range s.Images {
		out.Images = append(out.Images, genericImage{OSStream: i.Key.OSStream, Architecture: i.Key.Architecture, Platform: i.Key.Platform,
			Region: i.Key.Region, Variant: i.Key.Variant, Version: i.Version, Release: i.Release, Attributes: i.Attributes,
			Unavailable: i.Unavailable, Notice: i.Notice})
	}
	return json.MarshalIndent(out, "", "  ")
}
