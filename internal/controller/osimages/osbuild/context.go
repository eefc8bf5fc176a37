package osbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/oci"
)

// mostContext bytes of an artifact are read: it goes through a ConfigMap.
const mostContext = 512 << 10

// unpack looks what the artifact of a context is: an image is for the Job to pull, the
// files of another are read here.
func (m *materials) unpack(ctx context.Context) (image string, got result, err error) {
	ref := m.given.Artifact
	if ref == "" {
		return "", result{}, nil
	}
	from, err := m.bases()
	if err != nil {
		return "", result{}, err
	}
	root, err := from.Open(ctx, ref)
	if err != nil {
		return "", registryResult("build context", err), ctx.Err()
	}
	raw, err := oci.Fetch(ctx, root.Store, root.Desc)
	if err != nil {
		return "", registryResult("build context", err), ctx.Err()
	}
	var doc ocispec.Manifest
	if err := json.Unmarshal(raw, &doc); err != nil {
		return "", result{user: "build context " + ref + ": " + err.Error()}, nil //nolint:nilerr // it is the build's result
	}
	kind := doc.Config.MediaType
	if kind == "" || kind == ocispec.MediaTypeImageConfig || kind == "application/vnd.docker.container.image.v1+json" {
		return ref, result{}, nil // an index has no configuration, and is one of images
	}
	got, err = m.readFiles(ctx, ref, root.Store, doc.Layers)
	return "", got, err
}

// readFiles of an artifact that is no image.
func (m *materials) readFiles(ctx context.Context, ref string, from oci.Store, layers []ocispec.Descriptor) (result, error) {
	m.given.Files = map[string][]byte{}
	total := int64(0)
	for _, l := range layers {
		if total += l.Size; total > mostContext {
			return result{user: fmt.Sprintf("build context %s has more than %d bytes: make it an image (FROM scratch, COPY . /)", ref, mostContext)}, nil
		}
		name := l.Annotations[ocispec.AnnotationTitle]
		if err := plainPath(name); err != nil {
			return result{user: fmt.Sprintf("build context %s: %v", ref, err)}, nil //nolint:nilerr // it is the build's result
		}
		data, err := oci.Fetch(ctx, from, l)
		if err != nil {
			return registryResult("build context", err), ctx.Err()
		}
		m.given.Files[name] = data
	}
	return result{}, nil
}

// plainPath reports an error for a file outside of the context.
func plainPath(name string) error {
	switch {
	case name == "":
		return errors.New("a file of it has no name (" + ocispec.AnnotationTitle + "): push files with oras push, or an image")
	case path.Clean("/"+name) != "/"+name || slices.Contains(strings.Split(name, "/"), ".."):
		return fmt.Errorf("the file %q is outside of it", name)
	}
	return nil
}
