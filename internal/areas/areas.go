package areas

import (
	"fmt"
	"slices"
	"strings"
)

// Group is the API group of refit's kinds.
const Group = "refit.dev"

// Names of areas, as users write them.
const (
	BootImages = "boot-images"
	OSImages   = "os-images"
	ImageTags  = "image-tags"
	ClusterAPI = "cluster-api"
)

// Kind is a kind of group refit.dev.
type Kind struct{ Name, Plural string }

// Rule is an access right of the controller that only some areas need. Without a namespace it
// is cluster-wide.
type Rule struct{ Namespace, Group, Resource string }

// Object is installed for some areas only. Without a namespace it is cluster-scoped.
type Object struct{ Kind, Namespace, Name string }

// Area is a part of refit that an installation may leave out.
type Area struct {
	Name string
	// Missing completes the sentence "without it, refit does not".
	Missing string
	Kinds   []Kind
	Rules   []Rule
	Objects []Object
	// Controllers are those of the area, by their name in metrics and logs.
	Controllers []string
}

// builds is the namespace of registry Secrets and of Jobs.
const builds = "refit-builds"

// All are all areas, in the order in which they are shown.
var All = []Area{
	{
		Name:    BootImages,
		Missing: "keep the boot images of machine managers fresh, nor hold back a version that new machines could not join",
		Kinds:   []Kind{{"BootImagePolicy", "bootimagepolicies"}, {"BootImageStream", "bootimagestreams"}, {"MachineSource", "machinesources"}},
		Rules:   []Rule{{builds, "", "secrets"}},
		Objects: slices.Concat(policyObjects("refit-boot-images-new-enough"), policyObjects("refit-boot-images-decided"), buildObjects),

		Controllers: []string{"bootimages"},
	},
	{
		Name:    OSImages,
		Missing: "build OS images or boot nodes into them",
		Kinds:   []Kind{{"OSImage", "osimages"}, {"OSBuild", "osbuilds"}},
		Rules:   []Rule{{builds, "", "secrets"}, {builds, "", "configmaps"}, {builds, "batch", "jobs"}},
		Objects: append(policyObjects("refit-controller-jobs"), buildObjects...),

		Controllers: []string{"osimages", "osbuilds"},
	},
	{
		Name:    ImageTags,
		Missing: "follow image tags into workloads and static pods",
		Kinds:   []Kind{{"ImageTrack", "imagetracks"}},
		Rules: []Rule{{builds, "", "secrets"}, {builds, "batch", "jobs"}, {"", "batch", "cronjobs"},
			{"", "apps", "deployments"}, {"", "apps", "daemonsets"}, {"", "apps", "statefulsets"}},
		Objects: slices.Concat(policyObjects("refit-tracks-write-static-pods"), policyObjects("refit-controller-jobs"), buildObjects,
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

// buildObjects are the namespace of registry Secrets and Jobs, and the controller's access to
// it.
var buildObjects = []Object{{"Namespace", "", builds}, {"Role", builds, "refit-controller"}, {"RoleBinding", builds, "refit-controller"}}

// policyObjects are an admission policy and its binding.
func policyObjects(name string) []Object {
	return []Object{{"ValidatingAdmissionPolicy", "", name}, {"ValidatingAdmissionPolicyBinding", "", name}}
}

// Names returns the names of all areas.
func Names() []string {
	out := make([]string, len(All))
	for i := range All {
		out[i] = All[i].Name
	}
	return out
}

// Set is the areas that an installation leaves out. The zero value leaves nothing out.
type Set struct{ names []string }

// Parse parses the names of areas to leave out.
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

// Areas returns the areas that are left out.
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

// OmitsRule reports whether only left-out areas need an access right of the controller.
func (s Set) OmitsRule(r Rule) bool {
	return s.omits(func(a Area) bool { return slices.Contains(a.Rules, r) })
}

// OmitsObject reports whether only left-out areas need an object.
func (s Set) OmitsObject(o Object) bool {
	return s.omits(func(a Area) bool { return slices.Contains(a.Objects, o) })
}

// omits reports whether at least one area has it, and all that have it are left out.
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

// AreaOfKind returns the area that a kind of group refit.dev belongs to.
func AreaOfKind(name string) (Area, bool) {
	for i := range All {
		if slices.ContainsFunc(All[i].Kinds, func(k Kind) bool { return k.Name == name }) {
			return All[i], true
		}
	}
	return Area{}, false
}
