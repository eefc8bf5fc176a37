package imagetag

import (
	"fmt"
	"regexp"
	"strings"
)

// Ref is an image reference, normalised as container runtimes do: nginx is
// docker.io/library/nginx. Tag and digest are kept together; either may be
// missing, and a missing tag stays missing (runtimes take latest for it).
type Ref struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag,omitempty"`
	Digest     string `json:"digest,omitempty"` // sha256:...
}

// String writes the reference: repository, :tag, @digest.
func (r Ref) String() string {
	out := r.Repository
	if r.Tag != "" {
		out += ":" + r.Tag
	}
	if r.Digest != "" {
		out += "@" + r.Digest
	}
	return out
}

// Host is the registry, with its port: docker.io of docker.io/library/nginx.
func (r Ref) Host() string {
	host, _, _ := strings.Cut(r.Repository, "/")
	return host
}

var (
	domainText = regexp.MustCompile(`^(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?$`)
	pathText   = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	digestText = regexp.MustCompile(`^sha256:[a-f0-9]{64}$`)
	bareID     = regexp.MustCompile(`^[a-f0-9]{64}$`)
)

// maxPath of a repository below its host, in bytes.
const maxPath = 255

// ParseRef reads an image reference as it stands in a pod.
func ParseRef(s string) (Ref, error) {
	rest, digest, digested := strings.Cut(s, "@")
	if digested && !digestText.MatchString(digest) {
		return Ref{}, fmt.Errorf("image reference %q: after @ comes sha256: and 64 digits of 0-9a-f", s)
	}
	if bareID.MatchString(rest) {
		return Ref{}, fmt.Errorf("image reference %q: this is an image ID, no name", s)
	}
	rest, tag, err := cutTag(rest)
	if err != nil {
		return Ref{}, fmt.Errorf("image reference %q: %w", s, err)
	}
	host, path := splitHost(rest)
	whole := host + "/" + path
	if !domainText.MatchString(host) && pathText.MatchString(whole) {
		path = whole // the runtimes' grammar takes such a host for a part of the path
	}
	switch {
	case path != whole && !domainText.MatchString(host):
		return Ref{}, fmt.Errorf("image reference %q: %q is no host of a registry", s, host)
	case !pathText.MatchString(path):
		return Ref{}, fmt.Errorf("image reference %q: %q is no repository: lower case letters and digits, parted by single . _ __ or hyphens", s, path)
	case len(path) > maxPath:
		return Ref{}, fmt.Errorf("image reference %.40s...: the repository has %d characters, the most is %d", s, len(path), maxPath)
	}
	return Ref{Repository: whole, Tag: tag, Digest: digest}, nil
}

// cutTag parts a name from its tag, which may be empty.
func cutTag(name string) (rest, tag string, err error) {
	i := strings.LastIndexByte(name, ':')
	if i <= strings.LastIndexByte(name, '/') {
		return name, "", nil
	}
	return name[:i], name[i+1:], Legal(name[i+1:])
}

// splitHost parts a name into registry and repository: the first word is a
// registry only if it looks like one.
func splitHost(name string) (host, path string) {
	host, path, found := strings.Cut(name, "/")
	if !found || (!strings.ContainsAny(host, ".:") && host != "localhost" && strings.ToLower(host) == host) {
		host, path = "docker.io", name
	}
	if host == "index.docker.io" {
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	return host, path
}
