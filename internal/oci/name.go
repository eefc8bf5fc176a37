package oci

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// ParseName normalises an image reference (pause:3.10 becomes
// docker.io/library/pause:3.10) and splits off its digest, if it has one. It refuses a
// reference with neither tag nor digest, because its meaning changes without notice. A
// reference by digest alone keeps the digest in its name.
func ParseName(s string) (name, digest string, err error) {
	ref, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return "", "", fmt.Errorf("image reference %q: %w", s, err)
	}
	if d, ok := ref.(reference.Digested); ok {
		digest = d.Digest().String()
		if !strings.HasPrefix(digest, "sha256:") {
			return "", "", fmt.Errorf("image reference %q: only sha256 digests are supported", s)
		}
	}
	if t, ok := ref.(reference.Tagged); ok {
		return ref.Name() + ":" + t.Tag(), digest, nil
	}
	if digest == "" {
		return "", "", fmt.Errorf("image reference %q has no tag, so its meaning changes without notice; add a tag or a digest", s)
	}
	return ref.Name() + "@" + digest, digest, nil
}

// annotationName is the image's name for the name s in a layout. A bare word stays as it is:
// a layout may use any, but no pod can ask for it.
func annotationName(s string) (name string, bare bool, err error) {
	if s == "" {
		return "", false, errors.New("it has no name in its annotations: give it one with NAME=oci:DIR:TAG, or annotate it with org.opencontainers.image.ref.name")
	}
	if !strings.ContainsAny(s, "/:@") {
		return s, true, nil
	}
	name, _, err = ParseName(s)
	return name, false, err
}

// Tag is the tag of a normalised name, "" if it has none.
func Tag(name string) string {
	name, _, _ = strings.Cut(name, "@")
	i := strings.LastIndexByte(name, ':')
	if i < 0 || strings.ContainsRune(name[i:], '/') {
		return ""
	}
	return name[i+1:]
}

// Repository is a normalised name without tag and digest.
func Repository(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if tag := Tag(name); tag != "" {
		return strings.TrimSuffix(name, ":"+tag)
	}
	return name
}
