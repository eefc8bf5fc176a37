package staticpod

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v2"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/distribution"
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

// isOf reports whether the distribution of the node, or kubeadm, made it.
func (m *manifest) isOf(row distribution.Row) bool {
	for k := range m.Metadata.Annotations {
		if strings.HasPrefix(k, "kubeadm.kubernetes.io/") {
			return true
		}
	}
	return model.KubeadmPod(m.Metadata.Namespace, m.Metadata.Name) || row.Writes(m.Metadata.Namespace, m.Metadata.Name)
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
	if err := oneDocument(data); err != nil {
		return nil, err
	}
	pod, err := decode(data)
	if err != nil {
		return nil, err
	}
	spec, ok := pod["spec"].(map[string]any)
	if !ok {
		return nil, editError("it has no spec")
	}
	var out []imagePlace
	for _, c := range containersOf(spec) {
		name, _ := c["name"].(string)
		if !slices.Contains(containers, name) {
			continue
		}
		image, _ := c["image"].(string)
		p, err := locateImage(data, name, image)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	for _, name := range containers {
		if !slices.ContainsFunc(out, func(p imagePlace) bool { return p.container == name }) {
			return nil, editError("it has no container %s", name)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].begin < out[j].begin })
	return out, nil
}

func oneDocument(data []byte) error {
	var first, more any
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&first); err != nil {
		return editError("it cannot be read as YAML: %v", err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return editError("it has more than one document, and the kubelet reads only the first")
	}
	return nil
}

// decode decodes a manifest as the kubelet does; a duplicate key is an error.
func decode(data []byte) (pod map[string]any, err error) {
	if err := sigsyaml.UnmarshalStrict(data, &pod); err != nil {
		return nil, editError("it cannot be read: %v", err)
	}
	return pod, nil
}

func containersOf(spec map[string]any) (out []map[string]any) {
	for _, list := range []string{"initContainers", "containers"} {
		l, _ := spec[list].([]any)
		for _, x := range l {
			if c, ok := x.(map[string]any); ok {
				out = append(out, c)
			}
		}
	}
	return out
}

// probe is an image that locateImage writes to see what an edit changes.
const probe = "probe.example/refit"

// locateImage finds where the image of a container is written: the text that, replaced, changes
// this image and nothing else.
func locateImage(data []byte, container, image string) (imagePlace, error) {
	if image == "" {
		return imagePlace{}, editError("the image of container %s is missing, or is not text", container)
	}
	p := imagePlace{container: container, image: image}
	for from := 0; ; from = p.begin + 1 {
		i := bytes.Index(data[from:], []byte(image))
		if i < 0 {
			return imagePlace{}, editError("image %s is written in a way that refit does not change (an alias, an anchor that others refer to, an escape, more than one line): write it plainly", image)
		}
		p.begin, p.end = from+i, from+i+len(image)
		after := slices.Concat(data[:p.begin], []byte(probe), data[p.end:])
		if checkOnlyImages(data, after, map[string]string{container: probe}) == nil {
			return p, nil
		}
	}
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
	a, err := decode(before)
	if err != nil {
		return err
	}
	b, err := decode(after)
	if err != nil {
		return err
	}
	spec, _ := a["spec"].(map[string]any)
	for _, c := range containersOf(spec) {
		if name, _ := c["name"].(string); want[name] != "" {
			c["image"] = want[name]
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
