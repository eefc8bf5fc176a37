package bundlewriter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// maxObjectsBytes bounds what a bundle's cluster resources come to, as the controller
// bounds what it reads of them.
const maxObjectsBytes = 16 << 20

// readObjects makes one text of manifests: a file, or all of a folder by name. What the site
// would refuse is an error that names file, document and reason.
func readObjects(path string) ([]byte, error) {
	files, err := manifestFiles(path)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no .yaml, .yml or .json below %s", path)
	}
	var all bytes.Buffer
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if err := checkObjects(data); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		fmt.Fprintf(&all, "---\n%s\n", bytes.TrimRight(data, "\n"))
	}
	if all.Len() > maxObjectsBytes {
		return nil, fmt.Errorf("%s comes to %d bytes, at most %d are applied: make images or files of what is large", path, all.Len(), maxObjectsBytes)
	}
	return all.Bytes(), nil
}

// manifestFiles are a file, or those of a folder and below it, by name: the same folder
// makes the same bundle.
func manifestFiles(path string) ([]string, error) {
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

// object has the checked fields of a manifest.
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
