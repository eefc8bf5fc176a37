package bootstream

import (
	"regexp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/componentversion"
)

// RecogniseStock recognises a vendor's image that no stream lists any more, by its origin. It
// has the Google project, or the publisher and offer on Azure, of the stream's own images. The
// version comes from the image's name. An image without a version is not recognised, because
// it might be newer.
func (s *Stream) RecogniseStock(platform string, attributes map[string]string) (version string, ok bool) {
	switch platform {
	case "gcp":
		project, name := parseImageLink(attributes["selfLink"])
		if project == "" || !s.hasImage(platform, map[string]string{"project": project}) {
			return "", false
		}
		version = versionIn(name)
	case "azure":
		if !s.hasImage(platform, map[string]string{"publisher": attributes["publisher"], "offer": attributes["offer"]}) {
			return "", false
		}
		version = attributes["version"]
	}
	if _, err := componentversion.ParseOS(version); err != nil {
		return "", false
	}
	return version, true
}

// hasImage reports whether the stream has an image of a platform with these attributes.
func (s *Stream) hasImage(platform string, attributes map[string]string) bool {
	return slices.ContainsFunc(s.Images, func(i Image) bool { return i.Key.Platform == platform && holds(i.Attributes, attributes) })
}

var imageLink = regexp.MustCompile(`(?:^|/)projects/([a-z0-9.:-]+)/global/images/([a-z0-9-]+)$`)

// parseImageLink returns the project and the name of an image on Google Cloud.
func parseImageLink(text string) (project, name string) {
	m := imageLink.FindStringSubmatch(text)
	if m == nil {
		return "", ""
	}
	return m[1], m[2]
}

var imageName = regexp.MustCompile(`^(?:rhcos|fedora-coreos)-(.+)-gcp(?:-.+)?$`)

// versionIn returns the version in the name of a CoreOS image on Google, where dashes stand
// for dots.
func versionIn(name string) string {
	m := imageName.FindStringSubmatch(name)
	if m == nil {
		return ""
	}
	if _, err := componentversion.ParseOS(m[1]); err == nil {
		return m[1] // RHEL CoreOS
	}
	return strings.ReplaceAll(m[1], "-", ".")
}
