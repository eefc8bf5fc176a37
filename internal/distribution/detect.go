package distribution

import (
	"fmt"
	"slices"
	"strings"
)

// unitDirs are where units of packages, administrators and installers are.
var unitDirs = []string{"/etc/systemd/system/", "/usr/local/lib/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"}

// UnitDirs are the directories of units, the one that counts first.
func UnitDirs() []string { return slices.Clone(unitDirs) }

// foreign are paths of Kubernetes nodes that no row has: they are named if no row fits.
var foreign = []string{"/etc/kubernetes", "/var/lib/kubelet", "/etc/machine-config-daemon", "/var/snap/microk8s", "/system/bin/init",
	ContainerdSocket, CRIOSocket, "/etc/systemd/system/" + KubeletUnit, "/usr/lib/systemd/system/" + KubeletUnit}

// Roles of a node.
const (
	RoleServer = "server"
	RoleAgent  = "agent"
)

// Found is the distribution of a node.
type Found struct {
	Row Row
	// Role is RoleServer or RoleAgent.
	Role string
	// Unit is the name of the unit that starts it, UnitFile its path; "" if none was found.
	Unit, UnitFile string
	// Seen are the paths that prove the distribution.
	Seen []string
}

// AmbiguousError says that a node has marks of several distributions.
type AmbiguousError struct {
	// Names of the distributions, and the paths that prove each.
	Names []string
	Seen  map[string][]string
}

func (e *AmbiguousError) Error() string {
	parts := make([]string, 0, len(e.Names))
	for _, n := range e.Names {
		parts = append(parts, n+" ("+strings.Join(e.Seen[n], ", ")+")")
	}
	return "this node has files of several distributions: " + strings.Join(parts, "; ") + ". Remove what an earlier distribution left"
}

// UnknownError says that a node has marks of no distribution.
type UnknownError struct {
	// Seen are paths of Kubernetes that were found nevertheless.
	Seen []string
}

func (e *UnknownError) Error() string {
	if len(e.Seen) == 0 {
		return "this node has files of no known distribution, nor of Kubernetes"
	}
	return "this node has files of no known distribution; it has " + strings.Join(e.Seen, ", ")
}

// Detect finds the distribution of a node. exists reports whether a path exists on it.
func Detect(exists func(path string) bool) (Found, error) {
	var found []Found
	for _, r := range Rows() {
		if f, ok := r.detect(exists); ok {
			found = append(found, f)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Found{}, unknown(exists)
	}
	e := &AmbiguousError{Seen: map[string][]string{}}
	for _, f := range found {
		e.Names = append(e.Names, f.Row.Name)
		e.Seen[f.Row.Name] = f.Seen
	}
	return Found{}, e
}

// detect reports whether a row fits. A unit is proof only where it is the distribution's own.
func (r Row) detect(exists func(string) bool) (Found, bool) {
	f := Found{Row: r, Role: RoleAgent}
	f.Seen = existing(r.Marks, exists)
	for _, role := range []string{RoleServer, RoleAgent} {
		for _, unit := range r.units(role) {
			file := unitFile(unit, exists)
			if file == "" || f.Unit != "" {
				continue
			}
			f.Unit, f.UnitFile = unit, file
			if r.Supervised {
				f.Role = role
				f.Seen = append(f.Seen, file)
			}
		}
	}
	if f.Unit == "" || !r.Supervised {
		if len(existing(r.Server, exists)) > 0 {
			f.Role = RoleServer
		}
	}
	return f, len(f.Seen) > 0
}

func (r Row) units(role string) []string {
	if role == RoleServer {
		return r.Servers
	}
	return r.Agents
}

// unitFile returns where a unit is, "" if nowhere.
func unitFile(unit string, exists func(string) bool) string {
	for _, dir := range unitDirs {
		if exists(dir + unit) {
			return dir + unit
		}
	}
	return ""
}

func existing(paths []string, exists func(string) bool) []string {
	var out []string
	for _, p := range paths {
		if exists(p) {
			out = append(out, p)
		}
	}
	return out
}

// unknown names what there is of Kubernetes.
func unknown(exists func(string) bool) error {
	var seen []string
	for _, r := range Rows() {
		seen = append(seen, existing(r.Hints, exists)...)
	}
	seen = append(seen, existing(foreign, exists)...)
	slices.Sort(seen)
	return &UnknownError{Seen: slices.Compact(seen)}
}

// Difference says where a node differs from the row's defaults.
type Difference struct {
	What, Default, Here string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s, by default %s", d.What, d.Here, d.Default)
}

// Layout is a node as it is configured: its places, and where they differ from the row's.
type Layout struct {
	Program     string
	Places      Places
	Differences []Difference
}

// Layout applies what a unit and a configuration set to the row's defaults. config is the text
// of the distribution's own configuration, "" if there is none.
func (f Found) Layout(u Unit, config string) Layout {
	r := f.Row
	l := Layout{Program: u.Program, Places: r.Places}
	if f.Unit == "" {
		l.differ("unit", strings.Join(slices.Compact(append(r.units(RoleServer), r.units(RoleAgent)...)), " or "), "none of that name")
	}
	if l.Program != "" && !slices.Contains(r.Programs, l.Program) {
		l.differ("program", strings.Join(r.Programs, " or "), l.Program)
	}
	if dir := dataDir(r, u, config); dir != "" && dir != r.Places.DataDir {
		l.Places = r.Places.Below(dir)
		l.differ("data directory", r.Places.DataDir, dir)
	}
	l.setPlaces(r, u.Flags)
	return l
}

// setPlaces applies the flags that name one place each.
func (l *Layout) setPlaces(r Row, flags map[string]string) {
	for _, x := range []struct {
		what, flag string
		place      *string
		has        bool
	}{
		{"configuration", "config", &l.Places.Config, r.Supervised},
		{WhatSocket, "container-runtime-endpoint", &l.Places.Socket, true},
		{WhatKubeletDir, "kubelet-root-dir", &l.Places.KubeletDir, r.Name == K0s},
	} {
		at := strings.TrimPrefix(flags[x.flag], "unix://")
		if !x.has || !strings.HasPrefix(at, "/") || at == *x.place {
			continue
		}
		l.differ(x.what, *x.place, at)
		*x.place = at
		if x.flag == "kubelet-root-dir" {
			l.Places.KubeletPKI = at + "/pki"
		}
	}
}

func (l *Layout) differ(what, byDefault, here string) {
	l.Differences = append(l.Differences, Difference{what, byDefault, here})
}

// dataDir is the data directory that the unit or the configuration sets: a flag comes before a
// configuration.
func dataDir(r Row, u Unit, config string) string {
	if r.DataFlag == "" {
		return ""
	}
	dir := u.Flags[r.DataFlag]
	if dir == "" && r.Name != K0s { // k0s.yaml is the configuration of the cluster
		dir = topLevel(config, r.DataFlag)
	}
	if !strings.HasPrefix(dir, "/") {
		return ""
	}
	return "/" + strings.Trim(dir, "/")
}
