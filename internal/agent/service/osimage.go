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
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"

	"github.com/refit-dev/refit/internal/outbound"
)

// exporter writes an image of the node's runtime into a directory.
type exporter interface {
	Export(ctx context.Context, digest, dir string) (manifest string, err error)
}

// exporterOf returns nil for a runtime that cannot export images.
func exporterOf(rt imagekeeper.NodeRuntime) exporter {
	e, _ := rt.(exporter)
	return e
}

// osHost is the node for the OS updater.
type osHost struct {
	*nodeHost
	// images is nil for a runtime that cannot export images.
	images exporter
	// dir stores images while they are staged.
	dir string
	// copies are the agent's own blobs, for a runtime that cannot export images.
	copies flatten.BlobDir
	// registries restricts connections to registries, because image names come from API
	// objects.
	registries *outbound.Guard
}

// Driver detects how this node's OS is updated.
func (h osHost) Driver(ctx context.Context) (osdriver.Driver, error) {
	return osdriver.Detect(ctx, osdriver.Host{Runner: osdriver.Command{}}, osdriver.Openers{
		Whole: func(ctx context.Context, s osdriver.Source) (io.ReadCloser, error) {
			form := flatten.Whole
			if _, enforcing, _ := fsutil.HostContexts("/"); enforcing {
				form = flatten.Enforced
			}
			return h.tree(ctx, s, form)
		},
		Extension: func(ctx context.Context, s osdriver.Source) (io.ReadCloser, error) {
			return h.tree(ctx, s, flatten.Extension)
		},
	})
}

// Image returns the node's own copy of an image, from the runtime or the agent's store. It
// returns the registry only if the node has no copy.
func (h osHost) Image(ctx context.Context, image string) (osdriver.Source, []string, error) {
	_, digest, ok := strings.Cut(image, "@sha256:")
	if !ok {
		return osdriver.Source{}, nil, fmt.Errorf("image %q has no digest in its name", image)
	}
	if h.images != nil {
		dir, err := h.imageDir(digest)
		if err != nil {
			return osdriver.Source{}, nil, err
		}
		manifest, err := h.images.Export(ctx, "sha256:"+digest, dir)
		if err == nil {
			s := osdriver.Source{Transport: osdriver.Layout, Location: dir}
			return s, []string{manifest}, h.verifyPlatform(ctx, s)
		}
		if !errors.Is(err, containerd.ErrNoImage) {
			return osdriver.Source{}, nil, err
		}
	}
	s, same, err := h.assembleCopy(ctx, image, digest)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return s, same, err
	}
	if strings.HasPrefix(image, model.NoRegistry+"/") {
		return s, nil, fmt.Errorf("image %s was assembled on the site and is incomplete on this node: the base or the overlay is missing", image)
	}
	return h.downloadedOrRegistry(ctx, image, digest, false)
}

// verifyPlatform reads an exported image: the runtime exports a single manifest for any machine.
func (h osHost) verifyPlatform(ctx context.Context, s osdriver.Source) error {
	root, err := h.open(ctx, s)
	if err != nil {
		return err
	}
	_, err = flatten.Digests(ctx, root, platform())
	return refused(err)
}

// refused marks an error that no further try changes.
func refused(err error) error {
	if errors.Is(err, flatten.ErrNoPolicy) || errors.Is(err, flatten.ErrPlatform) {
		return fmt.Errorf("%w: %w", osdriver.ErrUnsupported, err)
	}
	return err
}

// Fetch is Image, and downloads an image that only the registry has.
func (h osHost) Fetch(ctx context.Context, image string) (osdriver.Source, []string, error) {
	s, same, err := h.Image(ctx, image)
	if err != nil || s.Transport != osdriver.Registry {
		return s, same, err
	}
	_, digest, _ := strings.Cut(image, "@sha256:")
	return h.downloadedOrRegistry(ctx, image, digest, true)
}

// Forget removes all staged images.
func (h osHost) Forget() error {
	if err := os.RemoveAll(h.dir); err != nil {
		return fmt.Errorf("OS image directory: %w", err)
	}
	return nil
}

// assembleCopy assembles the image from the agent's own blobs, for a runtime that cannot export
// images. It verifies every blob. It returns fs.ErrNotExist if a blob is missing.
func (h osHost) assembleCopy(ctx context.Context, image, hex string) (s osdriver.Source, same []string, err error) {
	root, err := h.copies.Root(image, hex)
	if err != nil {
		return s, nil, err
	}
	dir, err := h.imageDir(hex)
	if err != nil {
		return s, nil, err
	}
	manifest, err := flatten.Save(ctx, root, platform(), dir)
	if err != nil {
		return s, nil, refused(err)
	}
	return osdriver.Source{Transport: osdriver.Layout, Location: dir}, []string{manifest}, nil
}

// downloadedOrRegistry returns the copy that was downloaded before, or the registry.
func (h osHost) downloadedOrRegistry(ctx context.Context, image, digest string, fetch bool) (s osdriver.Source, same []string, err error) {
	dir, err := h.imageDir(digest)
	if err != nil {
		return s, nil, err
	}
	s = osdriver.Source{Transport: osdriver.Layout, Location: dir}
	if root, err := h.open(ctx, s); err == nil { // a download is complete or absent
		return s, []string{root.Desc.Digest.String()}, nil
	}
	from := osdriver.Source{Transport: osdriver.Registry, Location: image}
	root, err := h.open(ctx, from)
	if err != nil {
		return from, nil, fmt.Errorf("the image is not on this node, and its registry failed: %w", err)
	}
	if same, err = flatten.Digests(ctx, root, platform()); err != nil || !fetch {
		return from, same, refused(err)
	}
	_, err = flatten.Save(ctx, root, platform(), dir)
	return s, same, err
}

// imageDir returns the directory for an image, and removes those of other images.
func (h osHost) imageDir(digest string) (string, error) {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return "", fmt.Errorf("OS image directory: %w", err)
	}
	all, err := os.ReadDir(h.dir)
	if err != nil {
		return "", fmt.Errorf("OS image directory: %w", err)
	}
	for _, e := range all {
		if e.Name() != digest && e.Name() != digest+".part" { // a partial download continues
			if err := os.RemoveAll(filepath.Join(h.dir, e.Name())); err != nil {
				return "", fmt.Errorf("OS image directory: %w", err)
			}
		}
	}
	return filepath.Join(h.dir, digest), nil
}

func platform() string { return "linux/" + runtime.GOARCH }

func (h osHost) open(ctx context.Context, s osdriver.Source) (oci.Root, error) {
	if s.Transport == osdriver.Layout {
		return oci.OpenSingle(s.Location)
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
	tree, err := flatten.Tree(ctx, root, platform(), form)
	return tree, refused(err)
}

// Boot returns an ID that changes with a reboot and with a soft reboot of user space.
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

// Ready returns why this node is not Ready according to the API server; a report of the kubelet
// of an earlier boot does not count. unavailable means that the cause may be elsewhere: it is
// false if this node has no route, or if its own API server does not answer.
func (h osHost) Ready(ctx context.Context) (why string, unavailable bool) {
	n, err := h.nodeStatus(ctx)
	var unreachable apiclient.UnavailableError
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return "this node has no route to the API server: " + unix.ENETUNREACH.Error(), false
	case err != nil:
		own, unknown := apiclient.Local(h.paths)
		return err.Error(), errors.As(err, &unreachable) && (own == "" || unknown != nil)
	}
	boot, err := h.BootID()
	switch {
	case err != nil:
		return "boot ID: " + err.Error(), false
	case n.Boot != "" && n.Boot != boot:
		return "the kubelet has not reported this boot to the API server yet", false
	case !n.ready:
		return strings.TrimSuffix("the node is not Ready: "+n.why, ": "), false
	}
	return "", false
}

// KubeletState returns the state of the kubelet's unit, and the end of its log.
func (h osHost) KubeletState(ctx context.Context) string {
	u, err := h.Unit(ctx, kubeletUnit)
	state := kubeletUnit + " is " + u.Active
	switch {
	case err != nil:
		state = err.Error()
	case u.File == "":
		state = kubeletUnit + " does not exist"
	case u.Result != "" && u.Result != "success":
		state += " (" + u.Result + ")"
	}
	return state + "\n" + h.Log(ctx)
}

// Reboot restarts the machine, or its user space alone.
func (h osHost) Reboot(ctx context.Context, soft bool) error {
	if !soft {
		return h.nodeHost.Reboot(ctx)
	}
	_, err := osdriver.Command{}.Run(ctx, nil, "systemctl", "--no-block", "soft-reboot")
	return err
}
