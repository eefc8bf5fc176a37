package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/agent/apiclient"
	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"

	"github.com/refit-dev/refit/internal/outbound"
)

// exporter writes an image that the node's runtime has into a folder.
type exporter interface {
	Export(ctx context.Context, digest, dir string) (manifest string, err error)
}

// exporterOf is nil for a runtime that exports none.
func exporterOf(rt imagekeeper.NodeRuntime) exporter {
	e, _ := rt.(exporter)
	return e
}

// osHost is the node as the updater of the OS sees it.
type osHost struct {
	*nodeHost
	// images is nil for a runtime that exports none.
	images exporter
	// dir is where images lie while they are staged.
	dir string
	// copies of what bundles brought, for a runtime that gives no image back.
	copies flatten.BlobDir
	// registries guards the connections to registries: names come from objects.
	registries *outbound.Guard
}

// Driver finds out how this node's OS is moved.
func (h osHost) Driver(ctx context.Context) (osdriver.Driver, error) {
	return osdriver.Detect(ctx, osdriver.Host{Runner: osdriver.Command{}}, osdriver.Openers{
		Whole: func(ctx context.Context, s osdriver.Source) (io.ReadCloser, error) {
			return h.tree(ctx, s, flatten.Whole)
		},
		Extension: func(ctx context.Context, s osdriver.Source) (io.ReadCloser, error) {
			return h.tree(ctx, s, flatten.Extension)
		},
	})
}

// Image takes the node's own copy, which a bundle or the preloading brought: the
// runtime's, or the agent's. It names the registry only if there is none.
func (h osHost) Image(ctx context.Context, image string) (osdriver.Source, []string, error) {
	_, digest, ok := strings.Cut(image, "@sha256:")
	if !ok {
		return osdriver.Source{}, nil, fmt.Errorf("image %q is not named by its digest", image)
	}
	if h.images != nil {
		dir, err := h.room(digest)
		if err != nil {
			return osdriver.Source{}, nil, err
		}
		manifest, err := h.images.Export(ctx, "sha256:"+digest, dir)
		if err == nil {
			return osdriver.Source{Transport: osdriver.Layout, Location: dir}, []string{manifest}, nil
		}
		if !errors.Is(err, containerd.ErrNoImage) {
			return osdriver.Source{}, nil, err
		}
	}
	s, same, err := h.copied(ctx, image, digest)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return s, same, err
	}
	if strings.HasPrefix(image, model.NoRegistry+"/") {
		return s, nil, fmt.Errorf("image %s was made on the site, and is not wholly on this node yet: it lacks the base or what was added to it", image)
	}
	return h.elsewhere(ctx, image, digest, false)
}

// Fetch is Image, and brings what only the registry has into the folder.
func (h osHost) Fetch(ctx context.Context, image string) (osdriver.Source, []string, error) {
	s, same, err := h.Image(ctx, image)
	if err != nil || s.Transport != osdriver.Registry {
		return s, same, err
	}
	_, digest, _ := strings.Cut(image, "@sha256:")
	return h.elsewhere(ctx, image, digest, true)
}

// Forget empties the folder.
func (h osHost) Forget() error {
	if err := os.RemoveAll(h.dir); err != nil {
		return fmt.Errorf("room for OS images: %w", err)
	}
	return nil
}

// copied is the image of the agent's copy, for a runtime that gives none back. Every blob
// is compared on its way. fs.ErrNotExist if it is not here wholly.
func (h osHost) copied(ctx context.Context, image, hex string) (s osdriver.Source, same []string, err error) {
	root, err := h.copies.Root(image, hex)
	if err != nil {
		return s, nil, err
	}
	dir, err := h.room(hex)
	if err != nil {
		return s, nil, err
	}
	manifest, err := flatten.Save(ctx, root, platform(), dir)
	if err != nil {
		return s, nil, err
	}
	return osdriver.Source{Transport: osdriver.Layout, Location: dir}, []string{manifest}, nil
}

// elsewhere is the copy that was fetched before, or the registry.
func (h osHost) elsewhere(ctx context.Context, image, digest string, fetch bool) (s osdriver.Source, same []string, err error) {
	dir, err := h.room(digest)
	if err != nil {
		return s, nil, err
	}
	s = osdriver.Source{Transport: osdriver.Layout, Location: dir}
	if root, err := h.open(ctx, s); err == nil { // it is there wholly, or not at all
		return s, []string{root.Desc.Digest.String()}, nil
	}
	from := osdriver.Source{Transport: osdriver.Registry, Location: image}
	root, err := h.open(ctx, from)
	if err != nil {
		return from, nil, fmt.Errorf("the image is not on this node, and its registry does not give it: %w", err)
	}
	if same, err = flatten.Digests(ctx, root, platform()); err != nil || !fetch {
		return from, same, err
	}
	_, err = flatten.Save(ctx, root, platform(), dir)
	return s, same, err
}

// room is the folder for an image; those of others are let go.
func (h osHost) room(digest string) (string, error) {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return "", fmt.Errorf("room for OS images: %w", err)
	}
	all, err := os.ReadDir(h.dir)
	if err != nil {
		return "", fmt.Errorf("room for OS images: %w", err)
	}
	for _, e := range all {
		if e.Name() != digest && e.Name() != digest+".part" { // what was fetched in part goes on
			if err := os.RemoveAll(filepath.Join(h.dir, e.Name())); err != nil {
				return "", fmt.Errorf("room for OS images: %w", err)
			}
		}
	}
	return filepath.Join(h.dir, digest), nil
}

func platform() string { return "linux/" + runtime.GOARCH }

func (h osHost) open(ctx context.Context, s osdriver.Source) (oci.Root, error) {
	if s.Transport == osdriver.Layout {
		return oci.OpenOnly(s.Location)
	}
	r, err := oci.NewRegistriesWith(oci.DefaultKeychain, h.registries.Transport())
	if err != nil {
		return oci.Root{}, err
	}
	return r.Open(ctx, s.Location)
}

func (h osHost) tree(ctx context.Context, s osdriver.Source, form flatten.Form) (io.ReadCloser, error) {
	root, err := h.open(ctx, s)
	if err != nil {
		return nil, err
	}
	return flatten.Tree(ctx, root, platform(), form)
}

// Boot is another one after a restart of the machine, and of user space alone.
func (h osHost) Boot() (string, error) {
	id, err := h.BootID()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = h.unit(ctx, func(m *systemd.Manager) error {
		since, err := m.UserSpace()
		id += " " + since
		return err
	})
	return id, err
}

// Ready says why the API server does not call this node Ready. What the kubelet of an
// earlier boot has told counts for nothing. That this node has no way out at all, or an
// API server of its own that does not answer, is its own fault.
func (h osHost) Ready(ctx context.Context) (says string, away bool) {
	n, err := h.nodeSays(ctx)
	var no apiclient.AwayError
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return "this node has no way to the API server: " + unix.ENETUNREACH.Error(), false
	case err != nil:
		own, unknown := apiclient.Local(h.paths)
		return err.Error(), errors.As(err, &no) && (own == "" || unknown != nil)
	}
	boot, err := h.BootID()
	switch {
	case err != nil:
		return "this boot has no ID: " + err.Error(), false
	case n.Boot != "" && n.Boot != boot:
		return "the kubelet has not told the API server of this boot yet", false
	case !n.ready:
		return strings.TrimSuffix("the API server does not call the node Ready: "+n.why, ": "), false
	}
	return "", false
}

// KubeletSays is the state of the kubelet's unit, and the end of its log.
func (h osHost) KubeletSays(ctx context.Context) string {
	u, err := h.Unit(ctx, kubeletUnit)
	says := kubeletUnit + " is " + u.Active
	switch {
	case err != nil:
		says = err.Error()
	case u.File == "":
		says = kubeletUnit + " is not there"
	case u.Result != "" && u.Result != "success":
		says += " (" + u.Result + ")"
	}
	return says + "\n" + h.Log(ctx)
}

// Reboot restarts the machine, or its user space alone.
func (h osHost) Reboot(ctx context.Context, soft bool) error {
	if !soft {
		return h.nodeHost.Reboot(ctx)
	}
	_, err := osdriver.Command{}.Run(ctx, nil, "systemctl", "--no-block", "soft-reboot")
	return err
}
