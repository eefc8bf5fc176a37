package osimage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// Builder of an image.
type Builder string

// Builders.
const (
	// Append adds a layer to the base: files, units, kernel arguments.
	Append Builder = "Append"
	// Containerfile runs a build in a Job.
	Containerfile Builder = "Containerfile"
)

// builderVersions change when equal inputs would give another image.
var builderVersions = map[Builder]string{Append: "1", Containerfile: "2"}

// Inputs are everything that an image depends on.
type Inputs struct {
	// OSImage is the name of the object that declares it.
	OSImage string
	// Base is repository@sha256:...
	Base string
	// Config is the hash of the part of the pool's configuration that goes into the image.
	Config string
	// Containerfile is its text, empty for none; PerArchitecture are those of single
	// architectures, by name. Packages are sorted.
	Containerfile   string
	PerArchitecture map[string]string
	Packages        []string
	// Context is the hash of the files next to the Containerfile, or the digest of the
	// artifact with these files.
	Context string
	// Repository to push to. Platforms are sorted; empty means those of the base. With Output
	// the image is stored in the cluster instead, and Repository is only its name.
	Repository string
	Output     string
	Platforms  []string
}

// ChooseBuilder returns the builder of the image, and why.
func (in Inputs) ChooseBuilder() (Builder, string) {
	switch {
	case in.Containerfile != "" || len(in.PerArchitecture) > 0:
		return Containerfile, "the OSImage has a Containerfile"
	case len(in.Packages) > 0:
		return Containerfile, "packages are installed by running something: " + strings.Join(in.Packages, ", ")
	}
	return Append, "nothing has to be run: files, units and kernel arguments are a layer"
}

// parts by name, in a fixed order.
func (in Inputs) parts() [][2]string {
	b, _ := in.ChooseBuilder()
	packages, platforms := slices.Clone(in.Packages), slices.Clone(in.Platforms)
	sort.Strings(packages)
	sort.Strings(platforms)
	return [][2]string{{"OSImage", in.OSImage}, {"base", in.Base}, {"configuration", in.Config}, {"Containerfile", in.containerfilesHash()}, {"packages", strings.Join(packages, " ")},
		{"repository", in.Repository}, {"platforms", strings.Join(platforms, " ")}, {"builder", string(b) + " " + builderVersions[b]}, {"context", in.Context}, {"output", in.Output}}
}

// containerfilesHash is the hash of all Containerfiles.
func (in Inputs) containerfilesHash() string {
	out := shortHash(in.Containerfile)
	for _, arch := range slices.Sorted(maps.Keys(in.PerArchitecture)) {
		out += " " + arch + "=" + shortHash(in.PerArchitecture[arch])
	}
	return out
}

// ContainerfileFor is the Containerfile of a platform.
func (in Inputs) ContainerfileFor(platform string) string {
	if parts := strings.Split(platform, "/"); len(parts) > 1 {
		if text, ok := in.PerArchitecture[parts[1]]; ok {
			return text
		}
	}
	return in.Containerfile
}

func shortHash(s string) string {
	if s == "" {
		return ""
	}
	return Hash(s)[:16]
}

// Hash of a text, in hex.
func Hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// maxPrefix of a build's name: it is a label's value too.
const maxPrefix = 50

// Name of the build.
func (in Inputs) Name() string {
	var b strings.Builder
	for _, p := range in.parts() {
		if p[1] == "" && (p[0] == "context" || p[0] == "output") {
			continue // builds from before these inputs existed keep their names
		}
		fmt.Fprintf(&b, "%s %d %s\n", p[0], len(p[1]), p[1])
	}
	return strings.TrimRight(in.OSImage[:min(len(in.OSImage), maxPrefix)], ".-") + "-" + Hash(b.String())[:12]
}

// ChangedSince names the inputs that differ from other inputs.
func (in Inputs) ChangedSince(from Inputs) []string {
	var out []string
	was := from.parts()
	for i, p := range in.parts() {
		if p[1] != was[i][1] {
			out = append(out, p[0])
		}
	}
	return out
}
