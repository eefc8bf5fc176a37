package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// OpenOnly is the one image of a layout in a folder, whether it has a name or not.
func OpenOnly(dir string) (Root, error) {
	b, err := os.ReadFile(filepath.Join(dir, ocispec.ImageIndexFile))
	if err != nil {
		return Root{}, fmt.Errorf("OCI image layout: %w", err)
	}
	var idx ocispec.Index
	if err := json.Unmarshal(b, &idx); err != nil {
		return Root{}, fmt.Errorf("%s: index.json: %w", dir, err)
	}
	if len(idx.Manifests) != 1 {
		return Root{}, fmt.Errorf("%s has %d images, and must have one", dir, len(idx.Manifests))
	}
	return Root{Desc: idx.Manifests[0], Store: dirStore(dir)}, nil
}
