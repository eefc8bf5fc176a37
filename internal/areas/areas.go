package areas

import (
	"fmt"
	"slices"
	"strings"
)

// Group of refit's kinds.
const Group = "refit.dev"

// Names of the areas.
const (
	BootImages = "boot-images"
	OSImages   = "os-images"
	ImageTags  = "image-tags"
	ClusterAPI = "cluster-api"
)

// Kind of group refit.dev.
type Kind struct{ Name, Plural string }

// Rule is a right of the controller that only some areas need. Without a namespace it is one on
// the whole cluster.
type Rule struct{ Namespace, Group, Resource string }

// Object that is installed for some areas only. Without a namespace it is of the cluster.
type Object struct{ Kind, Namespace, Name string }

// Area is a part of refit that an installation may leave out.
type Area struct {
	Name string
	// Missing is what an installation without it does not do, after "without it, refit does not".
	Missing string
	Kinds   []Kind
	Rules   []Rule
	Objects []Object
	// Controllers by the name that their metrics and logs have.
	Controllers []string
}

// builds is the namespace of registry Secrets and of Jobs.
const builds = "refit-builds"

// All areas, in the order in which they are shown.
var All = []Area{
	{
		Name:    BootImages,
		Missing: "keep the boot images of machine managers fresh, nor hold back a version that new machines could not join",
		Kinds:   []Kind{{"BootImagePolicy", "bootimagepolicies"}, {"BootImageStream", "bootimagestreams"}, {"MachineSource", "machinesources"}},
		Rules:   []Rule{{builds, "", "secrets"}},
		Objects: append(policy("refit-boot-images-new-enough"), ofBuilds...),

		Controllers: []string{"bootimages"},
	},
	{
		Name:    OSImages,
		Missing: "build OS images or boot nodes into them",
		Kinds:   []Kind{{"OSImage", "osimages"}, {"OSBuild", "osbuilds"}},
		Rules:   []Rule{{builds, "", "secrets"}, {builds, "", "configmaps"}, {builds, "batch", "jobs"}},
		Objects: append(policy("refit-controller-jobs"), ofBuilds...),

		Controllers: []string{"osimages", "osbuilds"},
	},
	{
		Name:    ImageTags,
		Missing: "follow image tags into workloads and static pods",
		Kinds:   []Kind{{"ImageTrack", "imagetracks"}},
		Rules: []Rule{{builds, "", "secrets"}, {builds, "batch", "jobs"}, {"", "batch", "cronjobs"},
			{"", "apps", "deployments"}, {"", "apps", "daemonsets"}, {"", "apps", "statefulsets"}},
		Objects: slices.Concat(policy("refit-tracks-write-static-pods"), policy("refit-controller-jobs"), ofBuilds,
			[]Object{{"ClusterRole", "", "refit-image-writer"}}),
		Controllers: []string{"tracks"},
	},
	{
		Name:    ClusterAPI,
		Missing: "answer Cluster API's in-place update hooks, nor keep Machine health checks from replacing a node that it updates",
		Kinds:   []Kind{{"InPlacePlan", "inplaceplans"}},
		Rules:   []Rule{{"", "cluster.x-k8s.io", "machines"}},
	},
}

// ofBuilds is the namespace of registry Secrets and Jobs, and the controller's place in it.
var ofBuilds = []Object{{"Namespace", "", builds}, {"Role", builds, "refit-controller"}, {"RoleBinding", builds, "refit-controller"}}

// policy is an admission policy with its binding.
func policy(name string) []Object {
	return []Object{{"ValidatingAdmissionPolicy", "", name}, {"ValidatingAdmissionPolicyBinding", "", name}}
}

// Names of all areas.
func Names() []string {
	out := make([]string, len(All))
	for i := range All {
		out[i] = All[i].Name
	}
	return out
}

// Set of areas that are left out. The zero value leaves nothing out.
type Set struct{ names []string }

// Parse reads names of areas that are to be left out.
func Parse(names []string) (Set, error) {
	var out Set
	for _, n := range names {
		n = strings.TrimSpace(n)
		if n == "" {
			continue
		}
		if !slices.Contains(Names(), n) {
			return Set{}, fmt.Errorf("there is no area %q that can be left out: name some of %s", n, strings.Join(Names(), ", "))
		}
		out.names = append(out.names, n)
	}
	slices.Sort(out.names)
	out.names = slices.Compact(out.names)
	return out, nil
}

// Has reports whether an area is left out.
func (s Set) Has(area string) bool { return slices.Contains(s.names, area) }

// Empty reports whether nothing is left out.
func (s Set) Empty() bool { return len(s.names) == 0 }

// String is the value of the flag -without.
func (s Set) String() string { return strings.Join(s.names, ",") }

// Areas that are left out.
func (s Set) Areas() []Area {
	return slices.DeleteFunc(slices.Clone(All), func(a Area) bool { return !s.Has(a.Name) })
}

// OmitsKind reports whether a kind of group refit.dev is left out.
func (s Set) OmitsKind(name string) bool {
	return s.omits(func(a Area) bool { return slices.ContainsFunc(a.Kinds, func(k Kind) bool { return k.Name == name }) })
}

// OmitsResource reports whether a resource of group refit.dev is left out: "osimages", or
// "osimages/status".
func (s Set) OmitsResource(resource string) bool {
	plural, _, _ := strings.Cut(resource, "/")
	return s.omits(func(a Area) bool {
		return slices.ContainsFunc(a.Kinds, func(k Kind) bool { return k.Plural == plural })
	})
}

// OmitsRule reports whether a right of the controller is for areas only that are left out.
func (s Set) OmitsRule(r Rule) bool {
	return s.omits(func(a Area) bool { return slices.Contains(a.Rules, r) })
}

// OmitsObject reports whether an object is for areas only that are left out.
func (s Set) OmitsObject(o Object) bool {
	return s.omits(func(a Area) bool { return slices.Contains(a.Objects, o) })
}

// omits reports whether some area has it and all that have it are left out.
func (s Set) omits(has func(Area) bool) bool {
	any := false
	for i := range All {
		if has(All[i]) {
			if !s.Has(All[i].Name) {
				return false
			}
			any = true
		}
	}
	return any
}

// OfKind returns the area that a kind of group refit.dev belongs to.
func OfKind(name string) (Area, bool) {
	for i := range All {
		if slices.ContainsFunc(All[i].Kinds, func(k Kind) bool { return k.Name == name }) {
			return All[i], true
		}
	}
	return Area{}, false
}
