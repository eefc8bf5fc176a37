package bootstream

import (
	"regexp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/osversion"
)

// Stock recognises an image that its vendor made and that no stream lists any more,
// by where it comes from and not by a list of all that ever were: of the
// Google project, or of the publisher and offer on Azure, that the stream's own
// images are of. Its version is read from its name. Without one it is not
// recognised: it might be newer.
func (s *Stream) Stock(platform string, attributes map[string]string) (version string, ok bool) {
	switch platform {
	case "gcp":
		project, name := link(attributes["selfLink"])
		if project == "" || !s.has(platform, map[string]string{"project": project}) {
			return "", false
		}
		version = versionIn(name)
	case "azure":
		if !s.has(platform, map[string]string{"publisher": attributes["publisher"], "offer": attributes["offer"]}) {
			return "", false
		}
		version = attributes["version"]
	}
	if _, err := osversion.Parse(version); err != nil {
		return "", false
	}
	return version, true
}

// has an image of a platform with these attributes.
func (s *Stream) has(platform string, attributes map[string]string) bool {
	return slices.ContainsFunc(s.Images, func(i Image) bool { return i.Key.Platform == platform && holds(i.Attributes, attributes) })
}

var imageLink = regexp.MustCompile(`(?:^|/)projects/([a-z0-9.:-]+)/global/images/([a-z0-9-]+)$`)

// link to an image of Google: its project and its name.
func link(text string) (project, name string) {
	m := imageLink.FindStringSubmatch(text)
	if m == nil {
		return "", ""
	}
	return m[1], m[2]
}

var imageName = regexp.MustCompile(`^(?:rhcos|fedora-coreos)-(.+)-gcp(?:-.+)?$`)

// versionIn the name of a CoreOS image on Google, which holds no dots.
func versionIn(name string) string {
	m := imageName.FindStringSubmatch(name)
	if m == nil {
		return ""
	}
	if _, err := osversion.Parse(m[1]); err == nil {
		return m[1] // RHEL CoreOS
	}
	return strings.ReplaceAll(m[1], "-", ".")
}
