package bootstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/componentversion"
)

// Key selects an image. Region and Variant are empty on a platform with one image for all.
type Key struct {
	// OSStream within the data, for example rhel-9; empty is the default one.
	OSStream string
	// Architecture as Kubernetes spells it: amd64, arm64, ppc64le, s390x.
	Architecture string
	// Platform: aws, gcp, azure, vsphere, openstack, nutanix, metal, ...
	Platform string
	// Region of a platform with an image in each.
	Region string
	// Variant of the image: a file format (qcow2.gz), an offer.
	Variant string
}

func (k Key) String() string {
	var parts []string
	for _, p := range []struct{ name, value string }{{"architecture", k.Architecture}, {"platform", k.Platform}, {"region", k.Region}, {"variant", k.Variant}, {"OS stream", k.OSStream}} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	return strings.Join(parts, ", ")
}

// Image is the wanted image of a Key.
type Image struct {
	Key Key
	// Version of the operating system in it.
	Version string
	// Release of this image, if the data has one; see [Stream.ReleaseOf].
	Release string
	// Attributes that identify it: image, project, name, location, sha256 ...
	Attributes map[string]string
	// Uploads of it, if it is a file.
	Uploads []Upload
	// Unavailable is why machines cannot start from it, empty if they can: its platform was
	// asked, and does not have it.
	Unavailable string
	// Notice is what its platform reports of it, for people: deprecated, a newer one exists.
	Notice string
}

// Stream is a set of wanted images.
type Stream struct {
	// Name of the stream, if the data has one.
	Name string
	// Release of the data, and its Kubernetes version; empty if the data has none.
	Release, Kubernetes string
	// Modified is when the data was written, zero if it has no time.
	Modified time.Time
	// Bundle has the versions of the bundle with the data, for data without its own.
	Bundle BundleVersions
	// OwnReleases: an image without a release has none. Vendors' stream data name the
	// release that ships them, and list images of earlier ones.
	OwnReleases bool
	// Images sorted by their key.
	Images []Image
}

// ReleaseOf returns the release of an image: its own in the data, else the one within its OS
// version, else that of the list unless OwnReleases is set. It is empty if none is known.
func (s *Stream) ReleaseOf(i Image) string {
	if i.Release != "" {
		return i.Release
	}
	if v, err := componentversion.ParseOS(i.Version); err == nil {
		if r, ok := v.Release(); ok {
			return r.Text
		}
	}
	if s.OwnReleases {
		return ""
	}
	return s.Release
}

// BundleVersions are the release of a bundle and its Kubernetes version.
type BundleVersions struct {
	Release    string `json:"release,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
}

// ErrNone says that the stream has no image for the key. Find wraps it.
var ErrNone = errors.New("no such boot image")

// Find returns the image of a key. With an empty Variant there must be only one.
func (s *Stream) Find(k Key) (Image, error) {
	var hits []Image
	left := s.Images
	for _, step := range []struct {
		name string
		want string
		of   func(Key) string
		any  bool
	}{
		{"OS stream", k.OSStream, func(k Key) string { return k.OSStream }, false},
		{"architecture", k.Architecture, func(k Key) string { return k.Architecture }, false},
		{"platform", k.Platform, func(k Key) string { return k.Platform }, false},
		{"region", k.Region, func(k Key) string { return k.Region }, false},
		{"variant", k.Variant, func(k Key) string { return k.Variant }, k.Variant == ""},
	} {
		hits = nil
		there := map[string]bool{}
		for _, i := range left {
			v := step.of(i.Key)
			there[v] = true
			if step.any || v == step.want || step.name == "region" && v == "" {
				hits = append(hits, i)
			}
		}
		if len(hits) == 0 {
			return Image{}, s.missing(step.name, step.want, there, k)
		}
		left = hits
	}
	if len(hits) > 1 {
		there := map[string]bool{}
		for _, i := range hits {
			there[i.Key.Variant] = true
		}
		return Image{}, fmt.Errorf("%w: there are several variants for %s, name one: %s", ErrNone, k, list(there))
	}
	if why := hits[0].Unavailable; why != "" {
		return Image{}, fmt.Errorf("%w: %s %s: %s", ErrNone, k, hits[0].Version, why)
	}
	return hits[0], nil
}

// Notices are the remarks of the platforms, each with its image; those about images that
// machines cannot start from come first.
func (s *Stream) Notices() []string {
	var gone, notices []string
	for _, i := range s.Images {
		switch {
		case i.Unavailable != "":
			gone = append(gone, i.Key.String()+": "+i.Unavailable)
		case i.Notice != "":
			notices = append(notices, i.Key.String()+": "+i.Notice)
		}
	}
	return append(gone, notices...)
}

func (s *Stream) missing(what, want string, there map[string]bool, k Key) error {
	if want == "" {
		return fmt.Errorf("%w: no %s is named for %s; there are: %s", ErrNone, what, k, list(there))
	}
	return fmt.Errorf("%w: stream %s has no %s %s (wanted: %s); there are: %s", ErrNone, s.title(), what, want, k, list(there))
}

func (s *Stream) title() string {
	switch {
	case s.Name != "" && s.Release != "":
		return s.Name + " of release " + s.Release
	case s.Release != "":
		return "of release " + s.Release
	}
	return s.Name
}

const shown = 12

func list(m map[string]bool) string {
	var out []string
	for k := range m {
		if k == "" {
			k = "(default)"
		}
		out = append(out, k)
	}
	if len(out) == 0 {
		return "none"
	}
	sort.Strings(out)
	if len(out) > shown {
		return strings.Join(out[:shown], ", ") + fmt.Sprintf(" and %d more", len(out)-shown)
	}
	return strings.Join(out, ", ")
}

// Recognise returns the image of a platform with the given attributes. Its version is then
// that of an object which names only the attributes.
func (s *Stream) Recognise(platform string, attributes map[string]string) (Image, bool) {
	if len(attributes) == 0 {
		return Image{}, false
	}
	for _, i := range s.Images {
		if i.Key.Platform == platform && i.is(attributes) {
			return i, true
		}
	}
	return Image{}, false
}

func (i Image) is(attributes map[string]string) bool {
	if holds(i.Attributes, attributes) {
		return true
	}
	return slices.ContainsFunc(i.Uploads, func(u Upload) bool { return holds(u.Attributes, attributes) })
}

// holds reports whether have contains all of want, with no empty value.
func holds(have, want map[string]string) bool {
	for k, v := range want {
		if v == "" || have[k] != v {
			return false
		}
	}
	return true
}

// OS returns the OS version of the images if all readable versions have the same major
// number, else "".
func (s *Stream) OS() string {
	out, major := "", 0
	for _, i := range s.Images {
		v, err := componentversion.ParseOS(i.Version)
		if err != nil {
			continue
		}
		if out != "" && v.Major != major {
			return ""
		}
		out, major = i.Version, v.Major
	}
	return out
}

// Architectures of the images.
func (s *Stream) Architectures() []string {
	return s.distinct(func(k Key) string { return k.Architecture })
}

// Platforms of the images.
func (s *Stream) Platforms() []string { return s.distinct(func(k Key) string { return k.Platform }) }

// OSStreams of the images, without the default one.
func (s *Stream) OSStreams() []string {
	return slices.DeleteFunc(s.distinct(func(k Key) string { return k.OSStream }), func(name string) bool { return name == "" })
}

func (s *Stream) distinct(of func(Key) string) []string {
	m := map[string]bool{}
	for _, i := range s.Images {
		m[of(i.Key)] = true
	}
	var out []string
	for v := range m {
		out = append(out, v)
	}
	sort.Strings(out)
	return out
}

// architectures by any spelling.
var architectures = map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"}

// Architecture as Kubernetes spells it; false if it is none.
func Architecture(spelled string) (string, bool) {
	a, ok := architectures[strings.ToLower(spelled)]
	return a, ok
}

// Largest is the size in bytes above which data is not read.
const Largest = 4 << 20

// Parse reads a stream in any form.
func Parse(data []byte) (*Stream, error) {
	if len(data) > Largest {
		return nil, fmt.Errorf("boot image stream: %d bytes, at most %d are read", len(data), Largest)
	}
	var form struct {
		APIVersion    string                     `json:"apiVersion"`
		Architectures map[string]json.RawMessage `json:"architectures"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, fmt.Errorf("boot image stream: no JSON object: %w", err)
	}
	switch {
	case form.APIVersion == GenericVersion:
		return parseGeneric(data)
	case form.APIVersion != "":
		return nil, fmt.Errorf("boot image stream: apiVersion %q is not known, it must be %s", form.APIVersion, GenericVersion)
	case form.Architectures != nil:
		return parseCoreOS(data, "")
	}
	return nil, fmt.Errorf("boot image stream: neither CoreOS stream metadata (no \"architectures\") nor a list (no \"apiVersion\": %q)", GenericVersion)
}

// finish sorts and refuses what is twice.
func (s *Stream) finish() (*Stream, error) {
	sort.SliceStable(s.Images, func(i, j int) bool { return less(s.Images[i].Key, s.Images[j].Key) })
	for i := 1; i < len(s.Images); i++ {
		if s.Images[i].Key == s.Images[i-1].Key {
			return nil, fmt.Errorf("boot image stream: %s is there twice", s.Images[i].Key)
		}
	}
	if len(s.Images) == 0 {
		return nil, errors.New("boot image stream: it holds no image")
	}
	return s, nil
}

func less(a, b Key) bool {
	x := []string{a.OSStream, a.Architecture, a.Platform, a.Region, a.Variant}
	y := []string{b.OSStream, b.Architecture, b.Platform, b.Region, b.Variant}
	return slices.Compare(x, y) < 0
}
