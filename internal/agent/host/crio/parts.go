package crio

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

// storedImage and storedLayer are what the store's own records say.
type storedImage struct {
	ID      string            `json:"id"`
	Layer   string            `json:"layer"`
	Data    []string          `json:"big-data-names"`
	Sizes   map[string]int64  `json:"big-data-sizes"`
	Digests map[string]string `json:"big-data-digests"`
}

type storedLayer struct {
	ID         string `json:"id"`
	Parent     string `json:"parent"`
	Compressed string `json:"compressed-diff-digest"`
	Diff       string `json:"diff-digest"`
}

// Parts are the pieces of an image in the store that CRI-O keeps with the overlay
// driver: manifests and configuration, and its unpacked layers. cri.ErrNoImage if
// it is not there with this digest.
func (c *Client) Parts(ctx context.Context, img cri.Target) ([]cri.Part, error) {
	if same, err := c.isComplete(ctx, img); err != nil || !same {
		return nil, errors.Join(err, fmt.Errorf("image %s: %w", img.Name, cri.ErrNoImage))
	}
	id, err := c.cri.ImageID(ctx, img.Name)
	if err != nil {
		return nil, err
	}
	root, err := c.Root(ctx)
	if err != nil {
		return nil, err
	}
	// CRI names the directory of the images' records, or the store itself.
	if base := filepath.Base(root); base == "overlay-images" || base == "overlay" {
		root = filepath.Dir(root)
	}
	parts, err := storeParts(root, strings.TrimPrefix(id, "sha256:"))
	if err != nil {
		return nil, fmt.Errorf("parts of image %s: %w", img.Name, err)
	}
	return parts, nil
}

func storeParts(root, id string) ([]cri.Part, error) {
	var all []storedImage
	if err := readRecord(filepath.Join(root, "overlay-images", "images.json"), &all); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(s storedImage) bool { return s.ID == id })
	if i < 0 {
		return nil, fmt.Errorf("the store in %s has no record of image %.12s", root, id)
	}
	var parts []cri.Part
	for _, name := range all[i].Data {
		if d := all[i].Digests[name]; strings.HasPrefix(d, "sha256:") {
			parts = append(parts, cri.Part{Digest: d, File: filepath.Join(root, "overlay-images", id, dataFile(name)), Size: all[i].Sizes[name]})
		}
	}
	var layers []storedLayer
	if err := readRecord(filepath.Join(root, "overlay-layers", "layers.json"), &layers); err != nil {
		return nil, err
	}
	return layerParts(root, all[i].Layer, layers, parts)
}

// layerParts follows the layers from the top down.
func layerParts(root, top string, layers []storedLayer, parts []cri.Part) ([]cri.Part, error) {
	for at := top; at != ""; {
		i := slices.IndexFunc(layers, func(l storedLayer) bool { return l.ID == at })
		if i < 0 {
			return parts, fmt.Errorf("the store in %s has no record of layer %.12s", root, at)
		}
		l := layers[i]
		digest := l.Compressed
		if digest == "" {
			digest = l.Diff
		}
		parts = append(parts, cri.Part{Digest: digest, Dir: filepath.Join(root, "overlay", l.ID, "diff"), Base: l.Parent == ""})
		at = l.Parent
	}
	return parts, nil
}

func readRecord(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

var plainName = regexp.MustCompile(`^[a-z0-9.]+$`)

// dataFile is the store's name for a piece of data of an image.
func dataFile(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return "=" + base64.StdEncoding.EncodeToString([]byte(name))
}

// Refresh does nothing: CRI-O reads its store whenever it is asked.
func (c *Client) Refresh(context.Context, cri.Target) error { return nil }
