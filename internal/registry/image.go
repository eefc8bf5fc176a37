package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"
)

// Image is the content behind a digest, as far as its manifests and its configuration
// describe it.
type Image struct {
	Digest string
	// Labels of the index, its first platform's manifest and configuration; the
	// outer ones win.
	Labels map[string]string
	// Config is a hash of how its container starts: entry point, command, user,
	// environment, working directory, ports, volumes, stop signal, health check.
	Config string
	// Layers of the first platform, by the digest of their content, the base's first.
	Layers []string
	// Platforms as os/arch or os/arch/variant, sorted.
	Platforms []string
	// Children are the manifests of an index.
	Children []string
	// Created is the date of its configuration; reproducible builds have a constant.
	Created time.Time
}

// Image reads what is behind a reference, with three requests for an index, two
// otherwise.
func (r *Reader) Image(ctx context.Context, reference string) (Image, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return Image{}, fmt.Errorf("image reference %q: %w", reference, err)
	}
	d, err := r.puller.Get(ctx, ref)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", reference, err)
	}
	out := Image{Digest: d.Digest.String(), Labels: map[string]string{}}
	if d.MediaType.IsIndex() {
		err = r.index(ctx, ref, d, &out)
	} else {
		var file *v1.ConfigFile
		if file, err = r.manifest(ctx, ref, d.Manifest, &out); err == nil {
			out.Platforms = []string{file.Platform().String()}
		}
	}
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", reference, err)
	}
	return out, nil
}

// index reads the platforms of an index, and the first of them.
func (r *Reader) index(ctx context.Context, ref name.Reference, d *remote.Descriptor, out *Image) error {
	m, err := v1.ParseIndexManifest(bytes.NewReader(d.Manifest))
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	out.addLabels(m.Annotations)
	first := ""
	for _, c := range m.Manifests {
		out.Children = append(out.Children, c.Digest.String())
		if c.Platform == nil || c.Platform.OS == "unknown" {
			continue // an attestation
		}
		if out.Platforms = append(out.Platforms, c.Platform.String()); first == "" {
			first = c.Digest.String()
		}
	}
	slices.Sort(out.Platforms)
	if first == "" {
		return fmt.Errorf("its index lists no platform")
	}
	child, err := r.puller.Get(ctx, ref.Context().Digest(first))
	if err != nil {
		return err
	}
	_, err = r.manifest(ctx, ref, child.Manifest, out)
	return err
}

// manifest reads one platform's manifest and configuration.
func (r *Reader) manifest(ctx context.Context, ref name.Reference, raw []byte, out *Image) (*v1.ConfigFile, error) {
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	out.addLabels(m.Annotations)
	for _, l := range m.Layers {
		out.Layers = append(out.Layers, l.Digest.String())
	}
	if m.Config.Size > maxAnswer {
		return nil, fmt.Errorf("its configuration has %d bytes, more than the %d allowed", m.Config.Size, maxAnswer)
	}
	blob, err := r.puller.Layer(ctx, ref.Context().Digest(m.Config.Digest.String()))
	if err != nil {
		return nil, err
	}
	body, err := blob.Compressed() // its digest is compared while it is read
	if err != nil {
		return nil, err
	}
	defer body.Close()
	file, err := v1.ParseConfigFile(body)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	out.addLabels(file.Config.Labels)
	out.Created = file.Created.Time
	out.Config, err = startHash(file.Config)
	return file, err
}

// startHash is a hash of how a container starts, without what a build adds by itself
// (labels, history, times).
func startHash(c v1.Config) (string, error) {
	b, err := json.Marshal(v1.Config{
		Entrypoint: c.Entrypoint, Cmd: c.Cmd, User: c.User, Env: c.Env, WorkingDir: c.WorkingDir, ExposedPorts: c.ExposedPorts,
		Volumes: c.Volumes, StopSignal: c.StopSignal, Healthcheck: c.Healthcheck, Shell: c.Shell,
	})
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}

func (i *Image) addLabels(labels map[string]string) {
	for k, v := range labels {
		if _, has := i.Labels[k]; !has {
			i.Labels[k] = v
		}
	}
}

// Images reads several images of one repository, by their digests.
func (r *Reader) Images(ctx context.Context, repository string, digests []string) ([]Image, error) {
	out := make([]Image, len(digests))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrent)
	for i, d := range digests {
		g.Go(func() (err error) {
			out[i], err = r.Image(ctx, repository+"@"+d)
			return err
		})
	}
	return out, g.Wait()
}
