package imagebuild

import (
	"fmt"
	"slices"
	"strings"
)

// Variant is a kind of pod in which buildah builds with RUN.
type Variant string

// Variants, the tightest first.
const (
	// UserNamespace: root and SYS_ADMIN in a user namespace of the pod's own, with the
	// runtime's seccomp profile.
	UserNamespace Variant = "user-namespace"
	// UserNamespaceUnconfined: the same without SYS_ADMIN, and without a profile.
	UserNamespaceUnconfined Variant = "user-namespace-without-seccomp"
	// FileCapabilities: user 1000, whose newuidmap has its capability in the file.
	FileCapabilities Variant = "user-1000-file-capabilities"
	// Root with the runtime's default capabilities, in a user namespace that buildah
	// makes.
	Root Variant = "root-without-seccomp"
	// RootAdmin: root with SYS_ADMIN under the runtime's profile; for clusters that
	// force a profile on every pod and have no user namespaces.
	RootAdmin Variant = "root-sys-admin"
)

// Variants from the tightest to the loosest.
var Variants = []Variant{UserNamespace, UserNamespaceUnconfined, FileCapabilities, Root, RootAdmin}

// Levels of Pod Security that a namespace may enforce.
const (
	LevelPrivileged = "privileged"
	LevelBaseline   = "baseline"
	LevelRestricted = "restricted"
)

// Facts are what the cluster allows and where the build may run.
type Facts struct {
	// UserNamespaces: the runtimes of all nodes that may build report user namespaces.
	UserNamespaces bool
	// Level of Pod Security that the namespace of builds enforces; empty means privileged.
	Level string
	// CRIO: a node that may build runs CRI-O, whose default capabilities do not include
	// SETFCAP.
	CRIO bool
	// SeccompDefault: the kubelets apply the runtime's profile to every pod.
	SeccompDefault bool
}

// Choice is a variant, and why no more restricted one.
type Choice struct {
	Variant Variant
	Why     string
}

// PickVariant returns the most restricted variant that the cluster allows and that has not
// failed here. An error names the reason and the fix.
func PickVariant(f Facts, tried []Variant) (Choice, error) {
	var not []string
	for _, v := range Variants {
		why := f.refuses(v)
		if slices.Contains(tried, v) {
			why = "it was tried and could not create its namespaces"
		}
		if why == "" {
			c := Choice{Variant: v, Why: "it is the tightest that builds"}
			if len(not) > 0 {
				c.Why = "tighter ones do not build here: " + strings.Join(not, "; ")
			}
			return c, nil
		}
		not = append(not, fmt.Sprintf("%s: %s", v, why))
	}
	return Choice{}, fmt.Errorf("no pod that this cluster allows can build (%s). Let the namespace enforce Pod Security baseline, or privileged for a build with SYS_ADMIN. Or install a runtime with user namespaces (runc 1.2 or later) on the build nodes", strings.Join(not, "; "))
}

// refuses returns why a variant cannot build here, "" if it can.
func (f Facts) refuses(v Variant) string {
	if f.Level == LevelRestricted {
		return "Pod Security restricted forbids what every build with RUN needs"
	}
	needs := map[Variant]struct{ namespaces, admin, unconfined bool }{
		UserNamespace: {namespaces: true, admin: true}, UserNamespaceUnconfined: {namespaces: true, unconfined: true},
		FileCapabilities: {unconfined: true}, Root: {unconfined: true}, RootAdmin: {admin: true},
	}[v]
	switch {
	case needs.namespaces && !f.UserNamespaces:
		return "a node that may build has no user namespaces for pods"
	case needs.admin && f.Level == LevelBaseline:
		return "Pod Security baseline allows no SYS_ADMIN"
	case needs.unconfined && f.SeccompDefault:
		return "the kubelets force the runtime's seccomp profile, which forbids new user namespaces"
	case v == Root && f.CRIO:
		return "CRI-O's default capabilities do not include SETFCAP"
	}
	return ""
}
