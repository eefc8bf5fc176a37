package machinekinds

import (
	"fmt"
	"slices"
	"strings"
)

// Facts of a manager.
type Facts struct {
	// Version of Kubernetes that it makes machines for, empty if it says none.
	Version string
	// Architecture as the object says it; ArchitectureErr if it says it and
	// cannot be understood.
	Architecture    string
	ArchitectureErr error
	// OSStream that the object is labelled with.
	OSStream string
	// Effect of a change of its image.
	Effect string
	// Excluded is why refit must not manage it.
	Excluded string
	// Owner is the other writer of the object, empty for none.
	Owner string
	// PartOf is the manager of this table that owns the object, as Kind/name: refit writes
	// the topmost object, not this one.
	PartOf string
	// Deleting: it has a deletion timestamp.
	Deleting bool
	// RollingOut: its machines are being replaced.
	RollingOut bool
}

// Facts reads an object of the manager's kind.
func (t *Table) Facts(m *Manager, o map[string]any) Facts {
	f := Facts{Effect: effect(o, m.Effects, m.Effect), Deleting: exists(o, "metadata.deletionTimestamp")}
	if m.Version != "" {
		f.Version = Lookup(o, m.Version)
	}
	if m.OSStream != "" {
		f.OSStream = Lookup(o, m.OSStream)
	}
	f.Architecture, f.ArchitectureErr = architecture(m, o)
	f.Excluded = excluded(o, m.Exclude).Why
	f.Owner, f.PartOf = t.owner(m, o)
	f.RollingOut = f.Effect == Replaces && rollingOut(m, o)
	return f
}

// rollingOut reports whether an object's controller replaces machines, or has not seen the last
// change yet. An object that reports neither is not rolling out.
func rollingOut(m *Manager, o map[string]any) bool {
	if seen := Lookup(o, "status.observedGeneration"); len(m.UpToDate) > 0 && seen != "" && seen != Lookup(o, "metadata.generation") {
		return true
	}
	for _, at := range m.RollingOut {
		if Lookup(o, at) == "True" {
			return true
		}
	}
	for _, at := range m.UpToDate {
		if n := Lookup(o, at); n != "" {
			all := Lookup(o, "status.replicas")
			return all != "" && n != all
		}
	}
	return false
}

func effect(o map[string]any, when []Effect, otherwise string) string {
	for _, e := range when {
		if Lookup(o, e.Path) == e.Value {
			return e.Effect
		}
	}
	return otherwise
}

func excluded(o map[string]any, list []Exclusion) Exclusion {
	for _, e := range list {
		if v := Lookup(o, e.Path); v != "" && (e.Value == "" || strings.EqualFold(v, e.Value)) {
			return e
		}
	}
	return Exclusion{}
}

// labelArchitecture within a list of labels.
const labelArchitecture = "kubernetes.io/arch="

// architecture returns the architecture of an object. A list of labels without one is an
// error; an object without a list has none.
func architecture(m *Manager, o map[string]any) (string, error) {
	for _, at := range m.Architecture {
		v := Lookup(o, at)
		if v == "" {
			continue
		}
		if !strings.Contains(v, "=") {
			return v, nil
		}
		for label := range strings.SplitSeq(v, ",") {
			if a, ok := strings.CutPrefix(strings.TrimSpace(label), labelArchitecture); ok && a != "" {
				return a, nil
			}
		}
		return "", fmt.Errorf("%s is %q, without %s", at, v, labelArchitecture)
	}
	return "", nil
}

// owner returns the other writer of an object: its owner, unless owners of that kind only
// garbage-collect it.
func (t *Table) owner(m *Manager, o map[string]any) (who, partOf string) {
	meta, _ := o["metadata"].(map[string]any)
	refs, _ := meta["ownerReferences"].([]any)
	for _, r := range refs {
		ref, _ := r.(map[string]any)
		kind, name := text(ref["kind"]), text(ref["name"])
		group, _, _ := strings.Cut(text(ref["apiVersion"]), "/")
		if slices.Contains(m.Owners, kind) {
			continue
		}
		if t.Manager(group, kind) != nil {
			return "", kind + "/" + name
		}
		who = kind + "/" + name
	}
	labels, _ := meta["labels"].(map[string]any)
	for _, l := range m.OwnedBy {
		if _, ok := labels[l]; ok {
			return "the tool that set label " + l, ""
		}
	}
	return who, ""
}

// Holder says where the image of a manager is.
type Holder struct {
	// Group, Kind and Name of the object that holds it; all empty if the manager
	// does itself.
	Group, Kind, Name string
	// Pointer is the JSON pointer, within the manager, of the name of that object.
	NamePath string
	// Row of the table, and Part: where it begins within the manager.
	Row  *ImageKind
	Part string
}

// Holder finds the row of a manager's image.
func (t *Table) Holder(m *Manager, o map[string]any) (Holder, error) {
	switch {
	case m.Itself:
		if k := t.Image(m.Group, m.Kind); k != nil {
			return Holder{Row: k}, nil
		}
		return Holder{}, fmt.Errorf("there is no row for images of kind %s", m.Kind)
	case m.Embedded != "":
		kind := Lookup(o, m.Embedded+".kind")
		if k := t.Image("", kind); k != nil {
			return Holder{Row: k, Part: m.Embedded}, nil
		}
		return Holder{}, fmt.Errorf("%s is of kind %q, for which there is no row", m.Embedded, kind)
	}
	for _, at := range m.Template {
		if !exists(o, at) {
			continue
		}
		h := Holder{Kind: Lookup(o, at+".kind"), Name: Lookup(o, at+".name"), Group: Lookup(o, at+".apiGroup"), NamePath: at + ".name"}
		if h.Group == "" {
			h.Group, _, _ = strings.Cut(Lookup(o, at+".apiVersion"), "/")
		}
		if h.Name == "" {
			return Holder{}, fmt.Errorf("%s names no object", at)
		}
		if h.Row = t.Image(h.Group, h.Kind); h.Row == nil {
			return Holder{}, fmt.Errorf("%s is %s.%s, for which there is no row", at, h.Kind, h.Group)
		}
		return h, nil
	}
	return Holder{}, fmt.Errorf("it refers to no template at %s", strings.Join(m.Template, ", "))
}

// Reference is the image that an object holds now.
type Reference struct {
	// Attributes as the stream names them.
	Attributes map[string]string
	// Text for people.
	Text string
	// Region, user-data Secret and Ignition version of the object.
	Region, UserData, UserDataSpec string
	// Excluded says why the object is left alone, on purpose.
	Excluded string
	// FromRelease: its image comes with the release.
	FromRelease bool
	// Effect of a change if this kind decides it, else empty.
	Effect string
}

// part of the object where the row's paths begin.
func part(o map[string]any, at string) (map[string]any, string, error) {
	if at == "" {
		return o, "", nil
	}
	p, err := parsePath(at)
	if err != nil {
		return nil, "", err
	}
	places, left := p.find(o, "")
	if len(places) != 1 || len(left) > 0 || places[0].missing {
		return nil, "", fmt.Errorf("there is no %s in the object", at)
	}
	m, ok := places[0].value().(map[string]any)
	if !ok {
		return nil, "", fmt.Errorf("%s is no object", at)
	}
	return m, places[0].pointer, nil
}

// Read returns the image of an object; at is where the row begins in it.
func (k *ImageKind) Read(o map[string]any, at string) (Reference, error) {
	root, _, err := part(o, at)
	if err != nil {
		return Reference{}, err
	}
	out := excluded(root, k.Exclude)
	r := Reference{Attributes: map[string]string{}, Excluded: out.Why, FromRelease: out.FromRelease, Effect: effect(root, k.Effects, k.Effect)}
	for p, to := range map[string]*string{k.Region: &r.Region, k.UserData: &r.UserData, k.UserDataSpec: &r.UserDataSpec} {
		if p != "" {
			*to = Lookup(root, p)
		}
	}
	var words []string
	form := k.form(root)
	for _, f := range form.Set {
		if v := Lookup(root, f.Path); f.From != "" && v != "" {
			r.Attributes[f.From] = v
			words = append(words, v)
		}
	}
	if len(words) == 0 && form.Shown != "" {
		words = append(words, Lookup(root, form.Shown))
	}
	r.Text = strings.Join(words, ":")
	return r, nil
}

// form that an object uses.
func (k *ImageKind) form(root map[string]any) *Form {
	for i := range k.Forms {
		if f := &k.Forms[i]; f.When == "" || filled(root, f.When) {
			return f
		}
	}
	return &k.Forms[len(k.Forms)-1]
}

// Needs are the attributes that an object's form takes from the stream.
func (k *ImageKind) Needs(o map[string]any, at string) []string {
	root, _, err := part(o, at)
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range k.form(root).Set {
		if f.From != "" {
			out = append(out, f.From)
		}
	}
	return out
}

// Write puts an image with these attributes into what e edits.
func (k *ImageKind) Write(e *Edit, at string, attributes map[string]string) error {
	root, pointer, err := part(e.Object, at)
	if err != nil {
		return err
	}
	inner := e.within(root, e.prefix+pointer)
	form := k.form(root)
	for _, f := range form.Set {
		v := f.Value
		if f.From != "" {
			if v = attributes[f.From]; v == "" {
				return fmt.Errorf("the stream's image has no attribute %q, which %s needs", f.From, k.Kind)
			}
		}
		if err := inner.Set(f.Path, v); err != nil {
			return err
		}
	}
	for _, c := range form.Clear {
		if err := inner.Clear(c); err != nil {
			return err
		}
	}
	e.ops = append(e.ops, inner.ops...)
	return nil
}

// FormOf is the number of the form that an object uses.
func (k *ImageKind) FormOf(o map[string]any, at string) int {
	root, _, err := part(o, at)
	if err != nil {
		return -1
	}
	f := k.form(root)
	for i := range k.Forms {
		if f == &k.Forms[i] {
			return i
		}
	}
	return -1
}
