package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// OpenSingle opens the one image of a layout in a directory, with or without a name.
func OpenSingle(dir string) (Root, error) {
	b, err := os.ReadFile(filepath.Join(dir, ocispec.ImageIndexFile))
	if err != nil {
		return Root{}, fmt.Errorf("OCI image layout: %w", err)
	}
	var idx ocispec.Index
	if err := json.Unmarshal(b, &idx); err != nil {
		return Root{}, fmt.Errorf("%s: index.json: %w", dir, err)
	}
	if len(idx.Manifests) != 1 {
		return Root{}, fmt.Errorf("%s has %d images, want one", dir, len(idx.Manifests))
	}
	return Root{Desc: idx.Manifests[0], Store: dirStore(dir)}, nil
}
