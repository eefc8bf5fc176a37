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

// builderVersions change when the same inputs would give another image.
var builderVersions = map[Builder]string{Append: "1", Containerfile: "2"}

// Inputs are all that an image depends on.
type Inputs struct {
	// OSImage that asks for it.
	OSImage string
	// Base is repository@sha256:...
	Base string
	// Config is the hash of what goes into the image of the pool's configuration.
	Config string
	// Containerfile is its text, empty for none; PerArchitecture are those of single
	// architectures, by name. Packages are sorted.
	Containerfile   string
	PerArchitecture map[string]string
	Packages        []string
	// Context is the hash of the files beside the Containerfile, or the artifact that
	// they come from, by digest.
	Context string
	// Repository that the image is pushed to; Platforms, sorted; empty is the base's.
	// Output is empty, or where it goes without being pushed: then Repository is a name.
	Repository string
	Output     string
	Platforms  []string
}

// Choose says which builder makes the image, and why.
func (in Inputs) Choose() (Builder, string) {
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
	b, _ := in.Choose()
	packages, platforms := slices.Clone(in.Packages), slices.Clone(in.Platforms)
	sort.Strings(packages)
	sort.Strings(platforms)
	return [][2]string{{"OSImage", in.OSImage}, {"base", in.Base}, {"configuration", in.Config}, {"Containerfile", in.texts()}, {"packages", strings.Join(packages, " ")},
		{"repository", in.Repository}, {"platforms", strings.Join(platforms, " ")}, {"builder", string(b) + " " + builderVersions[b]}, {"context", in.Context}, {"output", in.Output}}
}

// texts is the hash of all Containerfiles.
func (in Inputs) texts() string {
	out := short(in.Containerfile)
	for _, arch := range slices.Sorted(maps.Keys(in.PerArchitecture)) {
		out += " " + arch + "=" + short(in.PerArchitecture[arch])
	}
	return out
}

// Text is the Containerfile of a platform.
func (in Inputs) Text(platform string) string {
	if parts := strings.Split(platform, "/"); len(parts) > 1 {
		if text, ok := in.PerArchitecture[parts[1]]; ok {
			return text
		}
	}
	return in.Containerfile
}

func short(s string) string {
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
			continue // builds of before these were said keep their names
		}
		fmt.Fprintf(&b, "%s %d %s\n", p[0], len(p[1]), p[1])
	}
	return strings.TrimRight(in.OSImage[:min(len(in.OSImage), maxPrefix)], ".-") + "-" + Hash(b.String())[:12]
}

// Differs says in words what changed since other inputs: why there is another build.
func (in Inputs) Differs(from Inputs) []string {
	var out []string
	was := from.parts()
	for i, p := range in.parts() {
		if p[1] != was[i][1] {
			out = append(out, p[0])
		}
	}
	return out
}
