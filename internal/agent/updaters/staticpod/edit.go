package staticpod

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/model"
)

// manifest is what is looked at in a file of the kubelet.
type manifest struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// is reports whether a file is the manifest of a pod.
func (m *manifest) is(namespace, name string) bool {
	have := m.Metadata.Namespace
	if have == "" {
		have = "default" // as the kubelet reads it
	}
	return m.Metadata.Name == name && have == namespace
}

// kubeadms reports whether kubeadm made it.
func (m *manifest) kubeadms() bool {
	for k := range m.Metadata.Annotations {
		if strings.HasPrefix(k, "kubeadm.kubernetes.io/") {
			return true
		}
	}
	return model.KubeadmPod(m.Metadata.Namespace, m.Metadata.Name)
}

// errEdit says that a manifest cannot be changed: waiting does not help.
var errEdit = errors.New("the manifest is not changed")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errEdit, fmt.Sprintf(format, args...))
}

// place is an image in a manifest: from begin to end there is nothing but its
// text.
type place struct {
	begin, end int
	container  string
	image      string
}

// images finds the images of containers in a manifest, in the order in which they
// stand there.
func images(data []byte, containers []string) ([]place, error) {
	root, err := parse(data)
	if err != nil {
		return nil, err
	}
	spec, err := field(root, "spec")
	if err != nil {
		return nil, err
	}
	var out []place
	for _, list := range []string{"initContainers", "containers"} {
		found, err := imagesIn(data, spec, list, containers)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	for _, name := range containers {
		if !slices.ContainsFunc(out, func(p place) bool { return p.container == name }) {
			return nil, refuse("it has no container %s", name)
		}
	}
	slices.SortFunc(out, func(a, b place) int { return a.begin - b.begin })
	return out, nil
}

// parse a file with one document; a key that is there twice is an error.
func parse(data []byte) (*yaml.Node, error) {
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&doc); err != nil || len(doc.Content) != 1 {
		return nil, refuse("it cannot be read as YAML")
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, refuse("it has more than one document, and the kubelet reads only the first")
	}
	return doc.Content[0], nil
}

// field of a mapping. Nothing is looked for behind an alias: what stands there
// stands elsewhere too.
func field(n *yaml.Node, key string) (*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, refuse("what is around %s is no plain YAML mapping", key)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1], nil
		}
	}
	return nil, nil
}

func imagesIn(data []byte, spec *yaml.Node, list string, containers []string) ([]place, error) {
	if spec == nil {
		return nil, refuse("it has no spec")
	}
	l, err := field(spec, list)
	if err != nil || l == nil {
		return nil, err
	}
	if l.Kind != yaml.SequenceNode {
		return nil, refuse("%s is no plain YAML list", list)
	}
	var out []place
	for _, c := range l.Content {
		name, err := field(c, "name")
		if err != nil {
			return nil, err
		}
		if name == nil || !slices.Contains(containers, name.Value) {
			continue
		}
		image, err := field(c, "image")
		if err != nil {
			return nil, err
		}
		p, err := locate(data, image)
		if err != nil {
			return nil, err
		}
		p.container = name.Value
		out = append(out, p)
	}
	return out, nil
}

// locate the text of a scalar: it must stand there as it is meant, plain or in
// quotes.
func locate(data []byte, n *yaml.Node) (place, error) {
	if n == nil || n.Kind != yaml.ScalarNode || n.Anchor != "" || n.Tag != "!!str" {
		return place{}, refuse("an image is missing, or is no plain text")
	}
	at := offset(data, n.Line, n.Column)
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		at++
	}
	if at < 0 || at > len(data) || !bytes.HasPrefix(data[at:], []byte(n.Value)) {
		return place{}, refuse("image %s is written in a way that refit does not change (an escape, a block, more than one line): write it plainly", n.Value)
	}
	return place{begin: at, end: at + len(n.Value), image: n.Value}, nil
}

// offset in bytes of a line and a column, both from 1, the column in characters;
// -1 if there is none.
func offset(data []byte, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		i := bytes.IndexByte(data[at:], '\n')
		if i < 0 {
			return -1
		}
		at += i + 1
	}
	for ; column > 1; column-- {
		if at >= len(data) {
			return -1
		}
		_, size := utf8.DecodeRune(data[at:])
		at += size
	}
	return at
}

// edit puts images into a manifest, by container, and makes sure that nothing
// else of it means anything else afterwards.
func edit(data []byte, want map[string]string) ([]byte, error) {
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	places, err := images(data, names)
	if err != nil {
		return nil, err
	}
	var out []byte
	last := 0
	for _, p := range places {
		out = append(append(out, data[last:p.begin]...), want[p.container]...)
		last = p.end
	}
	out = append(out, data[last:]...)
	return out, onlyImages(data, out, want)
}

// onlyImages: what is there now means what was there before, with these images.
func onlyImages(before, after []byte, want map[string]string) error {
	var a, b map[string]any
	if err := sigsyaml.UnmarshalStrict(before, &a); err != nil {
		return refuse("it cannot be read: %v", err)
	}
	if err := sigsyaml.UnmarshalStrict(after, &b); err != nil {
		return refuse("with the new image it could not be read any more: %v", err)
	}
	spec, _ := a["spec"].(map[string]any)
	for _, list := range []string{"initContainers", "containers"} {
		l, _ := spec[list].([]any)
		for _, x := range l {
			c, _ := x.(map[string]any)
			if name, _ := c["name"].(string); want[name] != "" {
				c["image"] = want[name]
			}
		}
	}
	if !reflect.DeepEqual(a, b) {
		return refuse("with the new image something else in it would mean something else")
	}
	return nil
}

// repository of an image's name: all but tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i]
	}
	return image
}
