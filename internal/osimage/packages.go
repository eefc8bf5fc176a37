package osimage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Packages of an image: versions by name. Some are there more than once (kernels).
type Packages map[string][]string

// ReadPackages reads lines of a name and a version, as Text writes them.
func ReadPackages(text string) Packages {
	p := Packages{}
	for line := range strings.Lines(text) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "gpg-pubkey" {
			p.add(name, strings.TrimSpace(version))
		}
	}
	return p.sorted()
}

// ReadDpkg reads the installed packages in Debian's /var/lib/dpkg/status.
func ReadDpkg(status string) Packages {
	p := Packages{}
	for _, paragraph := range strings.Split(status, "\n\n") {
		var name, version string
		installed := false
		for line := range strings.Lines(paragraph) {
			key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
			switch key {
			case "Package":
				name = value
			case "Version":
				version = value
			case "Status":
				installed = strings.HasSuffix(value, " installed")
			}
		}
		if installed && name != "" {
			p.add(name, version)
		}
	}
	return p.sorted()
}

// ReadApk reads Alpine's /lib/apk/db/installed.
func ReadApk(db string) Packages {
	p := Packages{}
	name := ""
	for line := range strings.Lines(db) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "P:"); ok {
			name = v
		} else if v, ok := strings.CutPrefix(line, "V:"); ok && name != "" {
			p.add(name, v)
		}
	}
	return p.sorted()
}

func (p Packages) add(name, version string) {
	if version != "" && !slices.Contains(p[name], version) {
		p[name] = append(p[name], version)
	}
}

func (p Packages) sorted() Packages {
	for _, versions := range p {
		slices.Sort(versions)
	}
	return p
}

// Text is a line for every package and version, sorted: the same packages are the same
// text.
func (p Packages) Text() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		for _, v := range p[name] {
			fmt.Fprintf(&b, "%s %s\n", name, v)
		}
	}
	return b.String()
}

// Changes since other packages, a few words for each: "openssl 3.0.1 -> 3.0.2",
// "chrony 4.5 is new", "vim 9.1 is gone". Sorted by name.
func (p Packages) Changes(from Packages) []string {
	names := maps.Clone(p)
	maps.Copy(names, from)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := strings.Join(from[name], ", "), strings.Join(p[name], ", ")
		switch {
		case was == is:
		case was == "":
			out = append(out, name+" "+is+" is new")
		case is == "":
			out = append(out, name+" "+was+" is gone")
		default:
			out = append(out, name+" "+was+" -> "+is)
		}
	}
	return out
}

// namedChanges is how many changes a summary names.
const namedChanges = 5

// SummarizeChanges returns a sentence for people.
func SummarizeChanges(changes []string) string {
	switch n := len(changes); {
	case n == 0:
		return "no package changed"
	case n == 1:
		return "1 package changed: " + changes[0]
	case n > namedChanges:
		return fmt.Sprintf("%d packages changed: %s and %d more", n, strings.Join(changes[:namedChanges], ", "), n-namedChanges)
	default:
		return fmt.Sprintf("%d packages changed: %s", n, strings.Join(changes, ", "))
	}
}
