package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/agent/host/crio"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// absolute returns an absolute path of a bundle. Several places of one in parts have commas between
// them.
func absolute(path string) (string, error) {
	if _, err := os.Lstat(path); err == nil || !strings.Contains(path, ",") {
		return filepath.Abs(path)
	}
	places := strings.Split(path, ",")
	for i, p := range places {
		var err error
		if places[i], err = filepath.Abs(p); err != nil {
			return "", err
		}
	}
	return strings.Join(places, ","), nil
}

// loadOwnImages loads the images of group refit, nothing else. It returns the files and devices
// with the bundle.
func loadOwnImages(ctx context.Context, o Options, path string, r *Report) (places []string, err error) {
	f, err := openBundle(path, o.Digest)
	if err != nil {
		return nil, withoutBase(err)
	}
	defer f.Close()
	if err := f.CheckSize(); err != nil {
		return nil, err
	}
	h := f.Header()
	r.Bundle, r.Name, r.Version = h.Digest, h.Metadata.Name, h.Metadata.Version
	if o.Digest != "" && o.Digest != h.Digest {
		return nil, &WrongBundleError{Path: path, Found: h.Digest, Name: h.Metadata.Name + " " + h.Metadata.Version, Expected: o.Digest}
	}
	o.Printf("bundle %s %s, digest %s", r.Name, r.Version, r.Bundle)
	if err := checkImages(o, f, time.Now()); err != nil {
		return nil, err
	}
	return f.Places(), loadRefitImages(ctx, o, f, r)
}

// openBundle opens the bundle at a path. Of several on a medium it takes the one with the digest.
func openBundle(path, digest string) (*bundlereader.File, error) {
	f, err := bundlereader.OpenPath(path)
	var several *bundlereader.SeveralError
	if digest == "" || !errors.As(err, &several) {
		return f, err
	}
	for _, b := range several.Found {
		if b.Header != nil && b.Header.Digest == digest {
			return bundlereader.OpenPath(b.Path)
		}
	}
	return nil, err
}

// withoutBase adds to the refusal of a delta what helps on this node: it has no base yet.
func withoutBase(err error) error {
	var delta *bundlereader.DeltaError
	if !errors.As(err, &delta) {
		return err
	}
	return fmt.Errorf("%w. A node without refit has no base for it. If other nodes of the cluster have refit, run refit-agent install without --from: they supply the images", err)
}

func loadRefitImages(ctx context.Context, o Options, f *bundlereader.File, r *Report) error {
	c, err := openRuntime(ctx, o.Config, o.Places)
	if err != nil {
		return err
	}
	defer c.Close()
	h := f.Header()
	contact := firstContact{Bundle: h.Digest}
	for _, img := range h.Metadata.Images {
		if img.Group != bundle.GroupRefit {
			continue
		}
		names, err := c.Load(ctx, containerd.Image{Name: img.Name, Digest: img.Digest, MediaType: img.MediaType, Size: sizeOf(h, img.Digest)}, bundleBlobs{f})
		if err != nil {
			return err
		}
		o.Printf("image %s is loaded and pinned", img.Name)
		r.Images = append(r.Images, img.Name)
		contact.Names = append(contact.Names, names...)
	}
	if len(r.Images) == 0 {
		o.Printf("the bundle has no image of refit: the controller needs one that can be pulled")
	}
	b, err := json.Marshal(contact)
	if err != nil {
		return fmt.Errorf("record of first contact: %w", err)
	}
	return fsutil.WriteFile(contactFile(o), b, 0o600)
}

// openRuntime opens the node's container runtime: the configured one, or the one that the
// kubelet uses.
func openRuntime(ctx context.Context, conf agentconfig.Config, places Places) (imagekeeper.NodeRuntime, error) {
	socket := conf.Runtime
	if socket == "" {
		_, socket = kube.DefaultPlaces(places.Root)
	}
	return imagekeeper.Open(ctx, socket, crio.Places{Root: places.Root, Install: true}, slog.New(slog.DiscardHandler))
}

func contactFile(o Options) string {
	dir := o.Config.StateDir
	if dir == "" {
		dir = o.Places.at(agentconfig.DefaultStateDir)
	}
	return filepath.Join(dir, "first-contact.json")
}

func sizeOf(h *bundle.Header, digest string) int64 {
	for _, b := range h.Metadata.Blobs {
		if b.Digest == digest {
			return b.Size
		}
	}
	return 0
}

// bundleBlobs reads blobs straight from the bundle. Every chunk is compared while it is read,
// and the runtime compares the whole blob.
type bundleBlobs struct{ f *bundlereader.File }

func (b bundleBlobs) Open(digest string) (io.ReadCloser, error) {
	for i, have := range b.f.Header().Metadata.Blobs {
		if have.Digest == digest {
			return io.NopCloser(b.f.Blob(i)), nil
		}
	}
	return nil, fmt.Errorf("blob %s is not in the bundle: %w", digest, fs.ErrNotExist)
}

// WrongBundleError says that the medium has another bundle than the expected one.
type WrongBundleError struct{ Path, Found, Name, Expected string }

func (e *WrongBundleError) Error() string {
	return fmt.Sprintf("%s has bundle %s, digest %s; expected %s. Nothing was loaded or installed", e.Path, e.Name, e.Found, e.Expected)
}
