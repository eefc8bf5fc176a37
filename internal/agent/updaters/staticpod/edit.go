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

// manifest has the parts of a kubelet's file that this package reads.
type manifest struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// isFor reports whether a file is the manifest of a pod.
func (m *manifest) isFor(namespace, name string) bool {
	have := m.Metadata.Namespace
	if have == "" {
		have = "default" // as the kubelet reads it
	}
	return m.Metadata.Name == name && have == namespace
}

// isKubeadm reports whether kubeadm made it.
func (m *manifest) isKubeadm() bool {
	for k := range m.Metadata.Annotations {
		if strings.HasPrefix(k, "kubeadm.kubernetes.io/") {
			return true
		}
	}
	return model.KubeadmPod(m.Metadata.Namespace, m.Metadata.Name)
}

// errEdit marks a manifest that cannot be changed: waiting does not help.
var errEdit = errors.New("the manifest is not changed")

func editError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errEdit, fmt.Sprintf(format, args...))
}

// imagePlace is an image in a manifest: its text is exactly from begin to end.
type imagePlace struct {
	begin, end int
	container  string
	image      string
}

// findImages finds the images of containers in a manifest, in the order of the file.
func findImages(data []byte, containers []string) ([]imagePlace, error) {
	root, err := parseYAML(data)
	if err != nil {
		return nil, err
	}
	spec, err := mappingValue(root, "spec")
	if err != nil {
		return nil, err
	}
	var out []imagePlace
	for _, list := range []string{"initContainers", "containers"} {
		found, err := imagesIn(data, spec, list, containers)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	for _, name := range containers {
		if !slices.ContainsFunc(out, func(p imagePlace) bool { return p.container == name }) {
			return nil, editError("it has no container %s", name)
		}
	}
	slices.SortFunc(out, func(a, b imagePlace) int { return a.begin - b.begin })
	return out, nil
}

// parseYAML parses a file with one document; a duplicate key is an error.
func parseYAML(data []byte) (*yaml.Node, error) {
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&doc); err != nil || len(doc.Content) != 1 {
		return nil, editError("it cannot be read as YAML")
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, editError("it has more than one document, and the kubelet reads only the first")
	}
	return doc.Content[0], nil
}

// mappingValue returns a field of a mapping. It does not follow an alias: the same text is
// used elsewhere in the file too.
func mappingValue(n *yaml.Node, key string) (*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, editError("the parent of %s is not a plain YAML mapping", key)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1], nil
		}
	}
	return nil, nil
}

func imagesIn(data []byte, spec *yaml.Node, list string, containers []string) ([]imagePlace, error) {
	if spec == nil {
		return nil, editError("it has no spec")
	}
	l, err := mappingValue(spec, list)
	if err != nil || l == nil {
		return nil, err
	}
	if l.Kind != yaml.SequenceNode {
		return nil, editError("%s is not a plain YAML list", list)
	}
	var out []imagePlace
	for _, c := range l.Content {
		name, err := mappingValue(c, "name")
		if err != nil {
			return nil, err
		}
		if name == nil || !slices.Contains(containers, name.Value) {
			continue
		}
		image, err := mappingValue(c, "image")
		if err != nil {
			return nil, err
		}
		p, err := locateImage(data, image)
		if err != nil {
			return nil, err
		}
		p.container = name.Value
		out = append(out, p)
	}
	return out, nil
}

// locateImage finds the text of a scalar: its value must be there as it is, plain or in
// quotes.
func locateImage(data []byte, n *yaml.Node) (imagePlace, error) {
	if n == nil || n.Kind != yaml.ScalarNode || n.Anchor != "" || n.Tag != "!!str" {
		return imagePlace{}, editError("an image is missing, or is not plain text")
	}
	at := byteOffset(data, n.Line, n.Column)
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		at++
	}
	if at < 0 || at > len(data) || !bytes.HasPrefix(data[at:], []byte(n.Value)) {
		return imagePlace{}, editError("image %s is written in a way that refit does not change (an escape, a block, more than one line): write it plainly", n.Value)
	}
	return imagePlace{begin: at, end: at + len(n.Value), image: n.Value}, nil
}

// byteOffset is the offset of a line and a column, both from 1, the column in characters;
// -1 if there is none.
func byteOffset(data []byte, line, column int) int {
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

// replaceImages writes images into a manifest, by container, and verifies that nothing else
// in it changes its meaning.
func replaceImages(data []byte, want map[string]string) ([]byte, error) {
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	places, err := findImages(data, names)
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
	return out, checkOnlyImages(data, out, want)
}

// checkOnlyImages verifies that after means the same as before, with these images.
func checkOnlyImages(before, after []byte, want map[string]string) error {
	var a, b map[string]any
	if err := sigsyaml.UnmarshalStrict(before, &a); err != nil {
		return editError("it cannot be read: %v", err)
	}
	if err := sigsyaml.UnmarshalStrict(after, &b); err != nil {
		return editError("with the new image it could not be read any more: %v", err)
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
		return editError("with the new image something else in it would mean something else")
	}
	return nil
}

// repository of an image's name is all but tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i]
	}
	return image
}
