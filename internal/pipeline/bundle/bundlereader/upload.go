package bundlereader

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/registry"
)

const (
	// mediaTypeHeader is the configuration of a bundle in a registry, mediaTypeBlob each of
	// its blobs.
	mediaTypeHeader = "application/vnd.refit.bundle.header.v1"
	mediaTypeBlob   = "application/vnd.refit.bundle.blob.v1"
	// annotationBundle is the digest of the bundle.
	annotationBundle = "dev.refit.bundle"
	// maxUploadManifest is what registries accept as a manifest, in bytes.
	maxUploadManifest = 4 << 20
	// maxImageManifest is the largest manifest or index of an image that is read.
	maxImageManifest = 4 << 20
)

// Upload is a bundle as an artifact of a registry. Its configuration is the header, its layers
// are the blobs, so the registry stores every blob once. It also has the manifests of the
// images, which clients pull by their digests; images is how many names that are.
func Upload(f *File, repository, tag string) (u registry.Upload, images int, err error) {
	h := f.Header()
	type descriptor struct {
		MediaType string `json:"mediaType"`
		Digest    string `json:"digest"`
		Size      int64  `json:"size"`
	}
	var m struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		ArtifactType  string            `json:"artifactType"`
		Config        descriptor        `json:"config"`
		Layers        []descriptor      `json:"layers"`
		Annotations   map[string]string `json:"annotations"`
	}
	header := registry.Blob{MediaType: mediaTypeHeader, Digest: bundle.DigestOf(h.Raw), Data: h.Raw}
	m.SchemaVersion, m.MediaType, m.ArtifactType = 2, bundle.MediaTypeManifest, bundle.ArtifactType
	m.Config = descriptor{mediaTypeHeader, header.Digest, int64(len(h.Raw))}
	m.Annotations = map[string]string{annotationBundle: h.Digest, bundle.AnnotationTitle: h.Metadata.Name, bundle.AnnotationVersion: h.Metadata.Version}
	u = registry.Upload{Repository: repository, Tag: tag, Blobs: []registry.Blob{header}}
	for i, b := range h.Metadata.Blobs {
		m.Layers = append(m.Layers, descriptor{mediaTypeBlob, b.Digest, b.Size})
		u.Mounts = append(u.Mounts, registry.Mount{MediaType: mediaTypeBlob, Digest: b.Digest, Size: b.Size,
			Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(f.Blob(i)), nil }})
	}
	raw, err := json.Marshal(m)
	if err != nil || len(raw) > maxUploadManifest {
		return u, 0, fmt.Errorf("bundle %s has %d blobs: the manifest would have %d bytes, registries accept %d", h.Digest, len(m.Layers), len(raw), maxUploadManifest)
	}
	w := imageWriter{f: f, u: &u, done: map[string]bool{}}
	for _, i := range h.Metadata.Images {
		whole, err := w.add(i.Digest, i.MediaType)
		if err != nil {
			return u, 0, fmt.Errorf("image %s: %w", i.Name, err)
		}
		if whole {
			images++
		}
	}
	u.Manifests = append(u.Manifests, registry.Blob{MediaType: bundle.MediaTypeManifest, Digest: bundle.DigestOf(raw), Data: raw})
	return u, images, nil
}

// imageWriter adds the manifests of images to an upload.
type imageWriter struct {
	f *File
	u *registry.Upload
	// done are the manifests by digest: whether all under them is in the bundle.
	done map[string]bool
}

// add adds a manifest or an index after what it names. Registries refuse an index without all
// of its platforms; of such an index only the platforms in the bundle are added.
func (w *imageWriter) add(digest, mediaType string) (whole bool, err error) {
	if whole, known := w.done[digest]; known {
		return whole, nil
	}
	w.done[digest] = false // an index that names itself ends here
	blobs := w.f.Header().Metadata.Blobs
	n := slices.IndexFunc(blobs, func(b bundle.Blob) bool { return b.Digest == digest })
	if n < 0 || blobs[n].Size > maxImageManifest {
		return false, nil
	}
	raw, err := io.ReadAll(w.f.Blob(n))
	if err != nil {
		return false, err
	}
	var m struct {
		Manifests []struct {
			MediaType string `json:"mediaType"`
			Digest    string `json:"digest"`
		} `json:"manifests"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return false, fmt.Errorf("manifest %s: %w", digest, err)
	}
	whole = true
	for _, c := range m.Manifests {
		here, err := w.add(c.Digest, c.MediaType)
		if err != nil {
			return false, err
		}
		whole = whole && here
	}
	if whole {
		w.u.Manifests = append(w.u.Manifests, registry.Blob{MediaType: mediaType, Digest: digest, Data: raw})
	}
	w.done[digest] = whole
	return whole, nil
}
