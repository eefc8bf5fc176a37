package machinekinds

import (
	_ "embed" // the table
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed table.yaml
var builtIn []byte

// Effects of a change of the image.
const (
	// NewMachines: only machines that are made later start from the new image.
	NewMachines = "NewMachines"
	// Replaces: the change replaces running machines.
	Replaces = "Replaces"
	// Drifts: the change replaces running machines unless every NodePool that uses the
	// node class holds drift back.
	Drifts = "Drifts"
)

// Table of the kinds.
type Table struct {
	Managers []Manager   `json:"managers,omitempty"`
	Images   []ImageKind `json:"images,omitempty"`
}

// Manager is a kind whose objects create machines.
type Manager struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	// Versions that are asked for, the first that is served counts.
	Versions []string `json:"versions"`
	// Template are paths of the reference to a template or to a kind that holds
	// the image; the first that exists counts.
	Template []string `json:"template,omitempty"`
	// Embedded is the path of the part that holds the image; its kind says which
	// row of images it is.
	Embedded string `json:"embedded,omitempty"`
	// Itself is true if the object is of a kind in images.
	Itself bool `json:"itself,omitempty"`
	// ControlPlane is true if its machines are control planes.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Canary: a copy with one replica and a selector of its own makes one machine. Its paths
	// are spec.replicas, spec.selector and spec.template.metadata.
	Canary bool `json:"canary,omitempty"`
	// Version is the path of the Kubernetes version, empty if it has none.
	Version string `json:"version,omitempty"`
	// Effects of a change: the first whose path has the value counts, else Effect.
	Effects []Effect `json:"effects,omitempty"`
	Effect  string   `json:"effect"`
	// Owners are kinds that own an object but do not write it.
	Owners []string `json:"owners,omitempty"`
	// OwnedBy are labels of objects that another tool writes.
	OwnedBy []string `json:"ownedBy,omitempty"`
	// Architecture are paths of it; a path of a list of labels is read for
	// kubernetes.io/arch.
	Architecture []string `json:"architecture,omitempty"`
	// OSStream is the path of the OS stream's name.
	OSStream string `json:"osStream,omitempty"`
	// Cluster are paths of the name of the Cluster that it is of, in its namespace.
	Cluster []string `json:"cluster,omitempty"`
	// UpToDate are paths of the number of machines that a rollout has reached; the first with
	// a value is compared with status.replicas. RollingOut are paths that are True
	// during a rollout.
	UpToDate   []string `json:"upToDate,omitempty"`
	RollingOut []string `json:"rollingOut,omitempty"`
	// Exclude objects that are none of ours on purpose.
	Exclude []Exclusion `json:"exclude,omitempty"`
	// Nodes is how the node of one of its machines is known: see Facts.
	Schema string `json:"schema"`
}

// Effect of a change while a path has a value.
type Effect struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// Exclusion of objects with a value at a path; an empty value is any.
type Exclusion struct {
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
	Why   string `json:"why"`
	// FromRelease: its image comes with the release, so it cannot become too old.
	FromRelease bool `json:"fromRelease,omitempty"`
}

// OpenShift is the group of OpenShift's machine API, whose objects make machines of this cluster.
const OpenShift = "machine.openshift.io"

// ImageKind is a kind, or a part of an object, that holds an image. All its
// paths begin at the part for an embedded one.
type ImageKind struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
	// Versions as of Manager; none for an embedded one.
	Versions []string `json:"versions,omitempty"`
	Embedded bool     `json:"embedded,omitempty"`
	// Platform in the stream; empty if the policy says it.
	Platform string `json:"platform,omitempty"`
	// Immutable objects are not changed but cloned under another name.
	Immutable bool `json:"immutable,omitempty"`
	// Region is the path of it.
	Region string `json:"region,omitempty"`
	// RegionOf are kinds that a Cluster refers to and that say the region, where the
	// object itself does not. RegionOfNodes: it is the one of this cluster's nodes.
	RegionOf      []RegionSource `json:"regionOf,omitempty"`
	RegionOfNodes bool           `json:"regionOfNodes,omitempty"`
	// Forms of the image: the first whose When exists counts; the last needs none.
	Forms []Form `json:"forms"`
	// UserData is the path of the name of the Secret with the first-boot
	// configuration.
	UserData string `json:"userData,omitempty"`
	// UserDataSpec is the path of the version of Ignition that it is made for.
	UserDataSpec string      `json:"userDataSpec,omitempty"`
	Exclude      []Exclusion `json:"exclude,omitempty"`
	// Effects and Effect of a change, for kinds that decide it, not their manager.
	Effects []Effect `json:"effects,omitempty"`
	Effect  string   `json:"effect,omitempty"`
	// Schema says what the row was written from.
	Schema string `json:"schema"`
}

// RegionSource is a kind that a Cluster refers to.
type RegionSource struct {
	// Ref is the path of the reference in the Cluster.
	Ref   string `json:"ref"`
	Group string `json:"group"`
	Kind  string `json:"kind"`
	// Versions as of Manager.
	Versions []string `json:"versions"`
	// Path of the region in the object.
	Path string `json:"path"`
}

// Form of an image.
type Form struct {
	// When is a path that has a value, empty for always.
	When string `json:"when,omitempty"`
	// Shown is the path of what people see while no field of the form has a value.
	Shown string `json:"shown,omitempty"`
	// Set are the fields.
	Set []Field `json:"set"`
	// Clear are paths that must be removed when the fields are set.
	Clear []string `json:"clear,omitempty"`
}

// Field of an image: the value of an attribute of the stream's image, or always
// the same text.
type Field struct {
	Path  string `json:"path"`
	From  string `json:"from,omitempty"`
	Value string `json:"value,omitempty"`
}

// BuiltIn is refit's own table.
func BuiltIn() *Table {
	t, err := Parse(builtIn)
	if err != nil {
		panic("the built-in table of machine kinds: " + err.Error()) // a test reads it
	}
	return t
}

// Parse reads rows, strictly.
func Parse(data []byte) (*Table, error) {
	t := &Table{}
	if err := yaml.UnmarshalStrict(data, t); err != nil {
		return nil, fmt.Errorf("rows of machine kinds: %w", err)
	}
	for i := range t.Managers {
		if err := t.Managers[i].check(); err != nil {
			return nil, fmt.Errorf("rows of machine kinds: manager %s: %w", t.Managers[i].Kind, err)
		}
	}
	for i := range t.Images {
		if err := t.Images[i].check(); err != nil {
			return nil, fmt.Errorf("rows of machine kinds: image %s: %w", t.Images[i].Kind, err)
		}
	}
	return t, nil
}

// With returns the table with further rows; a row of the same kind is replaced.
func (t *Table) With(more *Table) *Table {
	out := &Table{Managers: slices.Clone(more.Managers), Images: slices.Clone(more.Images)}
	for _, m := range t.Managers {
		if out.Manager(m.Group, m.Kind) == nil {
			out.Managers = append(out.Managers, m)
		}
	}
	for _, k := range t.Images {
		if out.Image(k.Group, k.Kind) == nil {
			out.Images = append(out.Images, k)
		}
	}
	return out
}

// Manager of a kind, nil if there is none.
func (t *Table) Manager(group, kind string) *Manager {
	for i := range t.Managers {
		if t.Managers[i].Group == group && t.Managers[i].Kind == kind {
			return &t.Managers[i]
		}
	}
	return nil
}

// Image kind, nil if there is none. An embedded one has no group.
func (t *Table) Image(group, kind string) *ImageKind {
	for i := range t.Images {
		if t.Images[i].Group == group && t.Images[i].Kind == kind {
			return &t.Images[i]
		}
	}
	return nil
}

func (m *Manager) check() error {
	ways := 0
	for _, is := range []bool{len(m.Template) > 0, m.Embedded != "", m.Itself} {
		if is {
			ways++
		}
	}
	if ways != 1 {
		return fmt.Errorf("say exactly one of template, embedded and itself")
	}
	if m.Kind == "" || len(m.Versions) == 0 || m.Schema == "" {
		return fmt.Errorf("kind, versions and schema are needed")
	}
	paths := slices.Concat(m.Template, m.Architecture, m.Cluster, m.UpToDate, m.RollingOut, []string{m.Embedded, m.Version, m.OSStream})
	return checkAll(paths, m.Effects, m.Effect, m.Exclude, true)
}

func (k *ImageKind) check() error {
	if k.Kind == "" || k.Schema == "" || len(k.Forms) == 0 || k.Embedded != (k.Group == "") || k.Embedded != (len(k.Versions) == 0) {
		return fmt.Errorf("kind, schema and forms are needed, and group and versions unless it is embedded")
	}
	paths, err := k.regions()
	if err != nil {
		return err
	}
	paths = append(paths, k.Region, k.UserData, k.UserDataSpec)
	for i, f := range k.Forms {
		if (f.When == "") != (i == len(k.Forms)-1) {
			return fmt.Errorf("the last form, and only it, has no when")
		}
		fields, err := f.fields()
		if err != nil {
			return err
		}
		paths = append(append(append(paths, f.When, f.Shown), fields...), f.Clear...)
	}
	return checkAll(paths, k.Effects, k.Effect, k.Exclude, false)
}

// regions are the paths of other objects that have the region.
func (k *ImageKind) regions() (paths []string, err error) {
	for _, r := range k.RegionOf {
		if r.Ref == "" || r.Group == "" || r.Kind == "" || len(r.Versions) == 0 || r.Path == "" {
			return nil, fmt.Errorf("regionOf has ref, group, kind, versions and path")
		}
		paths = append(paths, r.Ref, r.Path)
	}
	return paths, nil
}

// fields are the paths that a form writes.
func (f *Form) fields() ([]string, error) {
	var paths []string
	named := 0
	for _, s := range f.Set {
		if (s.From == "") == (s.Value == "") || s.Path == "" {
			return nil, fmt.Errorf("a field has a path and one of from and value")
		}
		if s.From != "" {
			named++
		}
		paths = append(paths, s.Path)
	}
	if named == 0 {
		return nil, fmt.Errorf("a form names an attribute of the image")
	}
	return paths, nil
}

func checkEffect(effect string, needed bool) error {
	known := []string{NewMachines, Replaces, Drifts}
	if slices.Contains(known, effect) || effect == "" && !needed {
		return nil
	}
	return fmt.Errorf("effect %q is none of %s", effect, strings.Join(known, ", "))
}

func checkAll(paths []string, effects []Effect, effect string, exclude []Exclusion, needed bool) error {
	if err := checkEffect(effect, needed); err != nil {
		return err
	}
	for _, e := range effects {
		if err := checkEffect(e.Effect, true); err != nil {
			return err
		}
		paths = append(paths, e.Path)
	}
	for _, e := range exclude {
		if e.Path == "" || e.Why == "" {
			return fmt.Errorf("an exclusion has a path and a why")
		}
		paths = append(paths, e.Path)
	}
	for _, p := range paths {
		if p == "" {
			continue
		}
		if _, err := parsePath(p); err != nil {
			return err
		}
	}
	return nil
}
