//go:build linux

package registrytest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is the content of a made image. The same content gives the same digest.
type Image struct {
	Version   string            // label org.opencontainers.image.version, left out if empty
	Labels    map[string]string // further labels
	Layers    []string          // content of the layers, the base's first; one is made if there are none
	Platforms []string          // os/arch; two or more make an index; none is linux/amd64
	Created   time.Time         // of the configuration, zero by default
	Files     map[string]string // a layer on top of them, by path; none if empty
}

// Push makes an image and uploads it under tags (none: by its digest alone). It
// returns the digest of the index, or of the manifest if there is one platform.
func (s *Server) Push(repository string, img Image, tags ...string) string {
	s.t.Helper()
	platforms := img.Platforms
	if len(platforms) == 0 {
		platforms = []string{"linux/amd64"}
	}
	var adds []mutate.IndexAddendum
	for _, p := range platforms {
		one := s.build(img, p)
		os, arch, _ := strings.Cut(p, "/")
		adds = append(adds, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: os, Architecture: arch}}})
	}
	var thing remote.Taggable = adds[0].Add.(v1.Image)
	if len(adds) > 1 {
		thing = mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), adds...)
	}
	digest, err := thing.(interface{ Digest() (v1.Hash, error) }).Digest()
	s.must(err)
	s.made.Store(digest.String(), thing)
	s.must(s.upload(s.ref(repository+"@"+digest.String()), thing))
	for _, tag := range tags {
		s.must(remote.Put(s.ref(repository+":"+tag), thing, s.options()...))
	}
	return digest.String()
}

// PushArchive uploads the image of an OCI archive (a tar of an OCI image layout with
// one image) under tags, and returns its digest.
func (s *Server) PushArchive(repository, archive string, tags ...string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput()
	if err != nil {
		s.t.Fatalf("unpack %s: %v: %s", archive, err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	s.must(err)
	manifest, err := index.IndexManifest()
	s.must(err)
	if len(manifest.Manifests) != 1 {
		s.t.Fatalf("%s has %d images, want one", archive, len(manifest.Manifests))
	}
	digest := manifest.Manifests[0].Digest
	image, err := index.Image(digest)
	s.must(err)
	for _, tag := range tags {
		s.must(remote.Write(s.ref(repository+":"+tag), image, s.options()...))
	}
	return digest.String()
}

// Sign uploads a signature of cosign: a layer with the text that was signed, under the tag that
// cosign gives it.
func (s *Server) Sign(repository, digest string, payload []byte, signature string) {
	s.t.Helper()
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": signature}})
	s.must(err)
	s.must(remote.Write(s.ref(repository+":"+strings.Replace(digest, ":", "-", 1)+".sig"), img, s.options()...))
}

// Attach uploads an artifact of one file that refers to a digest.
func (s *Server) Attach(repository, digest, artifactType string, content []byte) {
	s.t.Helper()
	subject, err := remote.Get(s.ref(repository+"@"+digest), s.options()...)
	s.must(err)
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(artifactType))
	img, err = mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(content, types.MediaType(artifactType)), MediaType: types.MediaType(artifactType)})
	s.must(err)
	img = mutate.Subject(img, subject.Descriptor).(v1.Image)
	d, err := img.Digest()
	s.must(err)
	s.must(remote.Write(s.ref(repository+"@"+d.String()), img, s.options()...))
}

func (s *Server) upload(ref name.Reference, thing remote.Taggable) error {
	if idx, ok := thing.(v1.ImageIndex); ok {
		return remote.WriteIndex(ref, idx, s.options()...)
	}
	return remote.Write(ref, thing.(v1.Image), s.options()...)
}

// options are the login of a publisher, where the registry asks for tokens.
func (s *Server) options() []remote.Option {
	if s.tokens == nil {
		return nil
	}
	return []remote.Option{remote.WithAuth(&authn.Basic{Username: User, Password: Password})}
}

func (s *Server) build(img Image, platform string) v1.Image {
	s.t.Helper()
	layers := img.Layers
	if len(layers) == 0 {
		layers = []string{"one layer of " + img.Version}
	}
	out := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, text := range layers {
		var err error
		out, err = mutate.AppendLayers(out, static.NewLayer(tarOf(s, text+" on "+platform), types.OCIUncompressedLayer))
		s.must(err)
	}
	if len(img.Files) > 0 {
		var err error
		out, err = mutate.AppendLayers(out, static.NewLayer(tarOfFiles(s, img.Files), types.OCIUncompressedLayer))
		s.must(err)
	}
	file, err := out.ConfigFile()
	s.must(err)
	file = file.DeepCopy()
	file.OS, file.Architecture, _ = strings.Cut(platform, "/")
	file.Created = v1.Time{Time: img.Created}
	file.Config.Labels = map[string]string{}
	if img.Version != "" {
		file.Config.Labels["org.opencontainers.image.version"] = img.Version
	}
	for k, v := range img.Labels {
		file.Config.Labels[k] = v
	}
	out, err = mutate.ConfigFile(out, file)
	s.must(err)
	return out
}

// tarOf is a layer with one file.
func tarOf(s *Server, text string) []byte {
	return tarOfFiles(s, map[string]string{"content": text})
}

func tarOfFiles(s *Server, files map[string]string) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s.must(w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, err := w.Write([]byte(files[name]))
		s.must(err)
	}
	s.must(w.Close())
	return buf.Bytes()
}

// Tag makes a tag point to a digest of the repository.
func (s *Server) Tag(repository, digest, tag string) {
	s.t.Helper()
	d, err := remote.Get(s.ref(repository+"@"+digest), s.options()...)
	s.must(err)
	s.must(remote.Tag(s.ref(repository+":"+tag).(name.Tag), d, s.options()...))
}

// Copy copies a pushed image to another repository, by digest. The library's mount requests
// have a data race, so the layers are sent again, and the registry finds that it has them.
func (s *Server) Copy(from, digest, to string) {
	s.t.Helper()
	_, err := remote.Head(s.ref(from+"@"+digest), s.options()...)
	s.must(err)
	thing, ok := s.made.Load(digest)
	if !ok {
		s.t.Fatalf("%s was not pushed", digest)
	}
	s.must(s.upload(s.ref(to+"@"+digest), thing.(remote.Taggable)))
}

// Delete removes a manifest, and with it every tag that points at it.
func (s *Server) Delete(repository, digest string) {
	s.t.Helper()
	s.must(remote.Delete(s.ref(repository+"@"+digest), s.options()...))
}

// TagMany makes many tags point to a digest of the repository, as the registry itself stores them:
// one file and one directory per tag.
func (s *Server) TagMany(repository, digest string, tags []string) {
	s.t.Helper()
	_, sum, _ := strings.Cut(digest, ":")
	for _, tag := range tags {
		at := filepath.Join(s.dir, "docker/registry/v2/repositories", repository, "_manifests/tags", tag)
		for _, link := range []string{filepath.Join(at, "current"), filepath.Join(at, "index/sha256", sum)} {
			s.must(os.MkdirAll(link, 0o750))
			s.must(os.WriteFile(filepath.Join(link, "link"), []byte(digest), 0o600))
		}
	}
}

// Resolve is the digest behind a tag, "" if there is no such tag.
func (s *Server) Resolve(repository, tag string) string {
	s.t.Helper()
	d, err := remote.Head(s.ref(repository+":"+tag), s.options()...)
	if err != nil {
		if strings.Contains(err.Error(), "404") {
			return ""
		}
		s.t.Fatal(err)
	}
	return d.Digest.String()
}

// Ref is a full reference into this registry, of app:1 for example.
func (s *Server) Ref(rest string) string { return s.Addr + "/" + rest }

func (s *Server) ref(rest string) name.Reference {
	s.t.Helper()
	ref, err := name.ParseReference(s.Ref(rest), name.Insecure)
	s.must(err)
	return ref
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(fmt.Errorf("registry at %s: %w\n%s", s.Addr, err, s.log.tail()))
	}
}
