package write

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// maxObjectBytes bounds what a bundle's cluster resources come to, as the controller
// bounds what it reads of them.
const maxObjectBytes = 16 << 20

// openObjects makes one payload of manifests: a file, or all of a folder by name.
func (in *inputs) openObjects(path string) error {
	files, err := manifests(path)
	if err != nil {
		return inputf("resources: %w", err)
	}
	if len(files) == 0 {
		return inputf("resources: there is no .yaml, .yml or .json below %s", path)
	}
	var all bytes.Buffer
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return inputf("resources: %w", err)
		}
		if err := checkObjects(data); err != nil {
			return inputf("resources: %s: %w", f, err)
		}
		fmt.Fprintf(&all, "---\n%s\n", bytes.TrimRight(data, "\n"))
	}
	if all.Len() > maxObjectBytes {
		return inputf("resources: %s comes to %d bytes, at most %d are applied: make images or files of what is large", path, all.Len(), maxObjectBytes)
	}
	in.payloads = append(in.payloads, payloadRoot{name: bundle.PayloadResources, mode: 0o644, digest: bundle.DigestOf(all.Bytes()), size: int64(all.Len()),
		store: textStore{path, all.Bytes()}, explicit: true})
	return nil
}

// manifests are a file, or those of a folder and below it, by name: the same folder
// makes the same bundle.
func manifests(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil || !st.IsDir() {
		return []string{path}, err
	}
	var out []string
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)) {
			out = append(out, p)
		}
		return err
	})
	return out, err
}

// checkObjects refuses here what the controller would refuse on the site.
func checkObjects(data []byte) error {
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		var o object
		if err := yaml.Unmarshal(doc, &o); err != nil {
			return fmt.Errorf("document %d is no object: %w", n, err)
		}
		if why := o.refused(); why != "" {
			return fmt.Errorf("document %d: %s", n, why)
		}
	}
}

// object is what is looked at of a manifest.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

func (o object) refused() string {
	if o.APIVersion == "" && o.Kind == "" && o.Metadata.Name == "" {
		return "" // an empty document, or a comment
	}
	if len(o.Items) == 0 {
		return bundle.RefusedResource(o.APIVersion, o.Kind, o.Metadata.Name)
	}
	for _, i := range o.Items {
		if why := i.refused(); why != "" {
			return why
		}
	}
	return ""
}

// textStore is a payload that was put together.
type textStore struct {
	from string
	data []byte
}

func (s textStore) String() string { return s.from }

func (s textStore) Open(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s.data)), nil
}
