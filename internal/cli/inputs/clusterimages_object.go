package inputs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
)

// maxRefs bounds the references of a cluster.
const maxRefs = 500_000

// lastApplied repeats an earlier form of the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// object is one object of a list.
type listedObject struct {
	kind, namespace, name string
	// owner is the controller of the object as kind/namespace/name, or the object itself.
	owner  string
	fields map[string]json.RawMessage
}

// metadata are the fields that place an object.
type metadata struct {
	Name            string `json:"name"`
	Namespace       string `json:"namespace"`
	OwnerReferences []struct {
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		Controller bool   `json:"controller"`
	} `json:"ownerReferences"`
}

func (o *listedObject) String() string {
	return imagerefs.Object{Kind: o.kind, Namespace: o.namespace, Name: o.name}.String()
}

// item reads one object of a list.
func (r *clusterReader) item(k *listedKind, raw json.RawMessage) error {
	if r.out.Objects++; r.out.Objects > maxObjects {
		return fmt.Errorf("more than %d objects", maxObjects)
	}
	o, err := parseObject(k, raw)
	if err != nil {
		return err
	}
	if r.excluded(o.namespace) {
		return nil
	}
	if k.inUse != nil {
		use, err := k.inUse(r, o)
		if err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
		if !use {
			return nil
		}
	}
	return r.references(o)
}

// parseObject reads the place of an object, and drops the fields that have no images of their
// own. The items of a list come without their kind.
func parseObject(k *listedKind, raw json.RawMessage) (*listedObject, error) {
	o := &listedObject{kind: k.kind}
	var m metadata
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("an item of the list is no object")
	}
	o.fields = fields
	if data, ok := fields["metadata"]; ok {
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
		data, err := trimMetadata(data)
		if err != nil {
			return nil, fmt.Errorf("metadata of %s/%s: %w", m.Namespace, m.Name, err)
		}
		fields["metadata"] = data
	}
	o.namespace, o.name = m.Namespace, m.Name
	o.owner = o.String()
	for _, ref := range m.OwnerReferences {
		if ref.Controller {
			o.owner = imagerefs.Object{Kind: ref.Kind, Namespace: m.Namespace, Name: ref.Name}.String()
		}
	}
	for key, value := range map[string]string{"apiVersion": k.apiVersion, "kind": k.kind} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		fields[key] = text
	}
	return o, nil
}

// trimMetadata drops what repeats the object.
func trimMetadata(data json.RawMessage) (json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	delete(m, "managedFields")
	if raw, ok := m["annotations"]; ok {
		var annotations map[string]json.RawMessage
		if err := json.Unmarshal(raw, &annotations); err != nil {
			return nil, err
		}
		delete(annotations, lastApplied)
		trimmed, err := json.Marshal(annotations)
		if err != nil {
			return nil, err
		}
		m["annotations"] = trimmed
	}
	return json.Marshal(m)
}

// part decodes one field of an object.
func (o *listedObject) part(name string, into any) error {
	raw, ok := o.fields[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// references adds those of an object that its owner does not have.
func (r *clusterReader) references(o *listedObject) error {
	delete(o.fields, "status")
	data, err := json.Marshal(o.fields)
	if err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	refs, err := imagerefs.Find(o.String(), plain(data))
	if err != nil {
		return err
	}
	self := o.String()
	if o.kind == podKind {
		self = o.owner // the next pod of the same owner repeats it
	}
	known := make([]bool, len(refs))
	for i, ref := range refs {
		known[i] = r.seen[o.owner+" "+ref.Image]
	}
	for i, ref := range refs {
		r.seen[self+" "+ref.Image] = true
		if known[i] {
			continue
		}
		if len(r.out.Refs) == maxRefs {
			return fmt.Errorf("more than %d references: leave out namespaces", maxRefs)
		}
		ref.File, ref.Line = "", 0
		r.out.Refs = append(r.out.Refs, ref)
		if !ref.Maybe {
			r.images[fullName(ref.Image)] = true
		}
	}
	return nil
}

// plain escapes the characters that JSON allows in a text and YAML does not.
func plain(data []byte) []byte {
	if !bytes.ContainsFunc(data, notYAML) {
		return data
	}
	var out bytes.Buffer
	for _, c := range string(data) {
		if notYAML(c) {
			fmt.Fprintf(&out, `\u%04x`, c)
			continue
		}
		out.WriteRune(c)
	}
	return out.Bytes()
}

func notYAML(c rune) bool { return c >= 0x7f && c < 0xa0 || c == 0xfeff || c == 0xfffe || c == 0xffff }
