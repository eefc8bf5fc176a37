package imagerefs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The rules. Those that end in -like find candidates only.
const (
	// RuleContainer is the image of a container, init container or ephemeral container in a pod,
	// a template of pods or a custom resource with a list of containers.
	RuleContainer = "container"
	// RuleImageVolume is an image that a pod mounts.
	RuleImageVolume = "image-volume"
	// RuleField is a field of a custom resource (the table Fields).
	RuleField = "custom-resource-field"
	// RuleAnnotation is an annotation that selects an image.
	RuleAnnotation = "annotation"
	// RuleArgument is an argument of a container whose name says that it is an image.
	RuleArgument = "argument"
	// RuleVariable is a variable of a container, or a key of a ConfigMap, whose name says so.
	RuleVariable = "variable"
	// RuleImageLike is a field with the name image, or a mapping with repository and tag.
	RuleImageLike = "image-like"
	// RuleTextLike is any other text with the form of a reference.
	RuleTextLike = "text-like"
)

// containerLists are fields with the containers of a pod, also in custom resources.
var containerLists = []string{"containers", "initContainers", "ephemeralContainers"}

// imageAnnotations name an image for a pod.
var imageAnnotations = []string{
	// https://istio.io/latest/docs/reference/config/annotations/
	"sidecar.istio.io/proxyImage",
	// https://developer.hashicorp.com/vault/docs/platform/k8s/injector/annotations
	"vault.hashicorp.com/agent-image",
}

// fieldRules applies the rules that hold wherever a field stands.
func (f *finder) fieldRules(key string, v *value, path string) {
	switch {
	case slices.Contains(containerLists, key):
		for i, c := range v.items {
			f.container(c, fmt.Sprintf("%s[%d]", path, i))
		}
	case key == "volumes":
		for i, volume := range v.items {
			f.text(volume.get("image", "reference"), fmt.Sprintf("%s[%d].image.reference", path, i), RuleImageVolume)
		}
	case key == "annotations":
		for _, name := range imageAnnotations {
			f.text(v.field(name), join(path, name), RuleAnnotation)
		}
	}
}

// container has an image, and may name others in its arguments and variables.
func (f *finder) container(c *value, path string) {
	if c.str("image") == "" {
		return
	}
	f.text(c.field("image"), path+".image", RuleContainer)
	f.arguments(c, path)
	for i, e := range c.get("env").list() {
		f.variable(e.str("name"), e.field("value"), fmt.Sprintf("%s.env[%d].value", path, i))
	}
}

func (v *value) list() []*value {
	if v == nil {
		return nil
	}
	return v.items
}

// text notes a field that is an image by definition.
func (f *finder) text(v *value, path, rule string) {
	if v != nil && v.isText {
		f.add(v, path, strings.TrimPrefix(v.text, dockerPrefix), rule, false)
	}
}

// dockerPrefix is written before references that are URLs.
const dockerPrefix = "docker://"

// kindRules applies the rules for the kind of an object.
func (f *finder) kindRules(v *value, path string) {
	group, _, ok := strings.Cut(v.str("apiVersion"), "/")
	if !ok {
		group = ""
	}
	for _, c := range Fields {
		if c.Group == group && slices.Contains(c.Kinds, v.str("kind")) {
			for _, p := range c.Paths {
				f.each(v, strings.Split(p, "."), path)
			}
		}
	}
	if group == "" {
		switch v.str("kind") {
		case "ConfigMap":
			f.texts(v.field("data"), join(path, "data"))
		case "Secret":
			f.texts(v.field("stringData"), join(path, "stringData"))
		}
	}
}

// each follows a path of the table to its fields.
func (f *finder) each(v *value, rest []string, path string) {
	if v == nil {
		return
	}
	if len(rest) == 0 {
		f.tableField(v, path)
		return
	}
	key := strings.TrimRight(rest[0], "[]")
	if key == "*" {
		for i, k := range v.keys {
			f.each(v.fields[i], rest[1:], join(path, k))
		}
		return
	}
	found, depth := []place{{v.field(key), join(path, key)}}, strings.Count(rest[0], "[]")
	for range depth {
		var next []place
		for _, p := range found {
			for i, item := range p.v.list() {
				next = append(next, place{item, fmt.Sprintf("%s[%d]", p.path, i)})
			}
		}
		found = next
	}
	for _, p := range found {
		f.each(p.v, rest[1:], p.path)
	}
}

// place is a value and its path.
type place struct {
	v    *value
	path string
}

// tableField is a reference, or a mapping with repository and tag.
func (f *finder) tableField(v *value, path string) {
	if image := v.composed(); image != "" {
		f.add(v, path, image, RuleField, false)
		return
	}
	f.text(v, path, RuleField)
}

// composed is the reference of a mapping with registry, repository, tag and digest; "" if
// neither tag nor digest is there.
func (v *value) composed() string {
	repository := v.str("repository")
	if repository == "" {
		return ""
	}
	if registry := v.str("registry"); registry != "" {
		repository = registry + "/" + repository
	}
	tag, digest := v.scalar("tag"), cmp.Or(v.str("digest"), v.str("sha"))
	if digest != "" && !strings.Contains(digest, ":") {
		digest = "sha256:" + digest
	}
	switch {
	case tag != "" && digest != "":
		return repository + ":" + tag + "@" + digest
	case tag != "":
		return repository + ":" + tag
	case digest != "":
		return repository + "@" + digest
	}
	return ""
}

// texts reads the entries of a ConfigMap: variables, and objects in text.
func (f *finder) texts(data *value, path string) {
	if data == nil {
		return
	}
	for i, key := range data.keys {
		v, at := data.fields[i], join(path, key)
		if !v.isText {
			continue
		}
		f.variable(key, v, at)
		if !f.seen[v] && strings.Contains(v.text, "apiVersion") && strings.Contains(v.text, "kind") {
			f.objectsIn(v, at)
		}
	}
}

// maxWithin is how deep objects may stand in the text of others.
const maxWithin = 2

// objectsIn reads text that is objects: the pods that a provisioner starts, the manifests of a
// ClusterResourceSet. Other text is left to the candidates.
func (f *finder) objectsIn(v *value, path string) {
	if f.within == maxWithin || len(v.text) > MaxSize/8 {
		return
	}
	docs, err := parse([]byte(v.text))
	if err != nil {
		return
	}
	inner := &finder{file: f.file, object: f.object, seen: f.seen, line: cmp.Or(f.line, v.line), within: f.within + 1}
	whole := true
	for i, d := range docs {
		if d.str("apiVersion") == "" || d.str("kind") == "" {
			whole = whole && len(d.keys)+len(d.items) == 0
			continue
		}
		inner.prefix = path
		if len(docs) > 1 {
			inner.prefix = fmt.Sprintf("%s[%d]", path, i)
		}
		inner.list(d)
	}
	f.refs = append(f.refs, inner.refs...)
	if whole {
		f.seen[v] = true
	}
}

func sortByPlace(refs []Ref) {
	slices.SortStableFunc(refs, func(a, b Ref) int { return cmp.Compare(a.Line, b.Line) })
}
