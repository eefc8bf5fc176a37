// Package flatten turns a container image into the tree that libostree deploys: the
// layers applied in order, /etc as the default in /usr/etc, nothing below the
// directories that belong to the machine. BlobDir finds OS images among the blobs of
// bundles, for hosts whose container runtime cannot export an image (CRI-O).
//
// Promise: every blob is compared with its digest while it is read. Files are written
// lower layers first, so that a hard link follows its target; only names stay in memory.
// An image without exactly one kernel is refused: no node could boot it. So is one for
// another architecture (ErrPlatform). A missing or incomplete image in a BlobDir is
// fs.ErrNotExist.
//
// Files get the SELinux labels of the image's own policy, which the tools of libostree take over.
//
// Inputs: oci.Root, or a directory of complete blobs named by their digests. Output: a
// tar. Callers: the osdriver's ostree and sysext drivers, internal/agent/service.
package flatten

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/oci"
)

// Form is what the tree is for.
type Form int

// Forms of a tree.
const (
	// Whole is an OS that boots.
	Whole Form = iota
	// Extension is laid over /usr and /opt of another OS; all else is left out.
	Extension
	// Enforced is an OS that boots on a host whose SELinux enforces its policy.
	Enforced
)

// ErrNoPolicy says that an image has no SELinux policy, where a host enforces one.
var ErrNoPolicy = errors.New("it has no SELinux policy (/etc/selinux/config and file_contexts), and this host enforces one: its programs would start without labels, or not at all")

// ErrPlatform says that an image is for other machines.
var ErrPlatform = errors.New("its programs do not run here")

// Tree opens an image for a platform, for example linux/amd64.
func Tree(ctx context.Context, root oci.Root, platform string, form Form) (io.ReadCloser, error) {
	m, err := manifest(ctx, root, platform)
	if err != nil {
		return nil, err
	}
	f := &flat{ctx: ctx, store: root.Store, layers: m.Layers, form: form, most: maxUnpacked}
	if err := f.choose(); err != nil {
		return nil, fmt.Errorf("image %s: %w", root.Desc.Digest, err)
	}
	if err := errors.Join(f.bootable(), f.readPolicy()); err != nil {
		return nil, fmt.Errorf("image %s: %w", root.Desc.Digest, err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(f.write(tar.NewWriter(w))) }()
	return r, nil
}

// Digests are those under which an image may be known: its own, and that of the
// manifest for a platform.
func Digests(ctx context.Context, root oci.Root, platform string) ([]string, error) {
	out := []string{root.Desc.Digest.String()}
	d, _, err := choose(ctx, root, platform)
	if err == nil && d.Digest != root.Desc.Digest {
		out = append(out, d.Digest.String())
	}
	return out, err
}

// choose finds the manifest for a platform.
func choose(ctx context.Context, root oci.Root, platform string) (d ocispec.Descriptor, m *ocispec.Manifest, err error) {
	d = root.Desc
	b, err := oci.Fetch(ctx, root.Store, d)
	if err != nil {
		return d, nil, err
	}
	var idx ocispec.Index
	if err := json.Unmarshal(b, &idx); err != nil {
		return d, nil, fmt.Errorf("image %s: %w", d.Digest, err)
	}
	if len(idx.Manifests) > 0 {
		at := slices.IndexFunc(idx.Manifests, func(d ocispec.Descriptor) bool {
			return d.Platform != nil && d.Platform.OS+"/"+d.Platform.Architecture == platform
		})
		if at < 0 {
			return d, nil, fmt.Errorf("image %s has nothing for %s: %w", d.Digest, platform, ErrPlatform)
		}
		d = idx.Manifests[at]
		if b, err = oci.Fetch(ctx, root.Store, d); err != nil {
			return d, nil, err
		}
	}
	m = &ocispec.Manifest{}
	if err := json.Unmarshal(b, m); err != nil {
		return d, nil, fmt.Errorf("image %s: %w", d.Digest, err)
	}
	return d, m, verifyPlatform(ctx, root.Store, d.Digest, m.Config, platform)
}

// verifyPlatform compares what the configuration of an image says of its machines with a node. One
// that says nothing passes. The gate refuses it before the drain, so that a person has accepted it,
// and extensions without programs run anywhere.
func verifyPlatform(ctx context.Context, store oci.Store, image digest.Digest, config ocispec.Descriptor, platform string) error {
	if config.Digest == "" {
		return nil
	}
	b, err := oci.Fetch(ctx, store, config)
	if err != nil {
		return err
	}
	var is ocispec.Platform
	if err := json.Unmarshal(b, &is); err != nil {
		return fmt.Errorf("image %s: configuration: %w", image, err)
	}
	system, architecture, _ := strings.Cut(platform, "/")
	if is.OS != "" && is.OS != system || is.Architecture != "" && is.Architecture != architecture {
		return fmt.Errorf("image %s is for %s/%s, and this node is %s: %w", image, is.OS, is.Architecture, platform, ErrPlatform)
	}
	return nil
}

func manifest(ctx context.Context, root oci.Root, platform string) (*ocispec.Manifest, error) {
	_, m, err := choose(ctx, root, platform)
	return m, err
}

// Bounds of what a node unpacks: far above any OS, far below what a hostile layer pretends.
const (
	maxUnpacked = 64 << 30  // bytes of all tars, and of all files in them
	maxEntries  = 2 << 20   // of all layers
	maxName     = 4096      // bytes of a path, or of the target of a link
	maxNames    = 256 << 20 // bytes of all paths
	maxDecoder  = 128 << 20 // bytes of memory for unpacking, as for the bundles that are made
)

// flat is one image while it is read.
type flat struct {
	// entries and names count what choose keeps of all layers, files their sizes.
	entries, names int
	files          int64
	// unpacked counts the bytes of the tars in one pass over the layers, most is
	// maxUnpacked, less in tests.
	unpacked, most int64
	ctx            context.Context
	store          oci.Store
	layers         []ocispec.Descriptor
	form           Form
	// wins are, for every layer, the names that no higher layer replaced.
	wins []map[string]bool
	// policy has the files of SELinux in the image that say which label a file has, by name;
	// contexts are made of them, nil without SELinux.
	policy   map[string][]byte
	contexts *fsutil.Contexts
}

// walk reads the entries of a layer.
func (f *flat) walk(layer int, do func(name string, h *tar.Header, r io.Reader) error) error {
	blob, err := f.store.Open(f.ctx, f.layers[layer])
	if err != nil {
		return err
	}
	defer blob.Close()
	checked := f.layers[layer].Digest.Verifier()
	raw := io.TeeReader(blob, checked)
	plain, done, err := decompress(f.layers[layer].MediaType, raw)
	if err != nil {
		return err
	}
	defer done()
	counted := &counter{from: plain, left: f.most - f.unpacked}
	defer func() { f.unpacked = f.most - counted.left }()
	plain = counted
	t := tar.NewReader(plain)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("layer %s: %w", f.layers[layer].Digest, err)
		}
		if err := checkNames(h); err != nil {
			return fmt.Errorf("layer %s: %w", f.layers[layer].Digest, err)
		}
		if err := do(clean(h.Name), h, t); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, plain); err != nil {
		return fmt.Errorf("layer %s: %w", f.layers[layer].Digest, err)
	}
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return fmt.Errorf("layer %s: %w", f.layers[layer].Digest, err)
	}
	if !checked.Verified() {
		return fmt.Errorf("layer %s is not what its digest says", f.layers[layer].Digest)
	}
	return nil
}

// counter ends a stream that has more bytes than an image may have.
type counter struct {
	from io.Reader
	left int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

var errTooLarge = errors.New("the image unpacks to more than an OS image may have")

func checkNames(h *tar.Header) error {
	if len(h.Name) > maxName || len(h.Linkname) > maxName {
		return fmt.Errorf("it has a path of %d bytes, more than the %d allowed", max(len(h.Name), len(h.Linkname)), maxName)
	}
	return nil
}

// reserveBytes counts a name that is kept in memory, and the size of its file: a sparse one is
// larger than what was read of it.
func (f *flat) reserveBytes(name string, size int64) error {
	if size < 0 || size > f.most-f.files {
		return errTooLarge
	}
	f.entries, f.names, f.files = f.entries+1, f.names+len(name), f.files+size
	if f.entries > maxEntries || f.names > maxNames {
		return fmt.Errorf("the image has more than %d files, or their paths more than %d bytes", maxEntries, maxNames)
	}
	return nil
}

func decompress(mediaType string, r io.Reader) (io.Reader, func(), error) {
	switch {
	case strings.HasSuffix(mediaType, "gzip"):
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	case strings.HasSuffix(mediaType, "zstd"):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxDecoder), zstd.WithDecoderMaxMemory(maxDecoder))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return r, func() {}, nil
}

func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// choose decides which layer each name is from: the highest that has it, unless a
// higher one takes it, or a folder above it, away.
func (f *flat) choose() error {
	f.wins = make([]map[string]bool, len(f.layers))
	// seen says whether what a higher layer has of that name is a folder.
	seen, gone := map[string]bool{}, map[string]bool{}
	for i := len(f.layers) - 1; i >= 0; i-- {
		f.wins[i] = map[string]bool{}
		goneHere, here := map[string]bool{}, map[string]bool{}
		err := f.walk(i, func(name string, h *tar.Header, r io.Reader) error {
			if err := f.reserveBytes(name, h.Size); err != nil {
				return err
			}
			dir, base := path.Split(name)
			switch {
			case base == opaque:
				goneHere[strings.TrimSuffix(dir, "/")] = true // the files below it
			case strings.HasPrefix(base, whiteout):
				goneHere[dir+strings.TrimPrefix(base, whiteout)] = true
			case !hidden(gone, seen, name):
				f.wins[i][name] = true
				here[name] = h.Typeflag == tar.TypeDir
				return f.keepPolicy(name, h, r)
			}
			return nil
		})
		if err != nil {
			return err
		}
		maps.Copy(seen, here)
		maps.Copy(gone, goneHere)
	}
	return nil
}

// hidden reports whether a higher layer has this name, took it away, or has or took
// away a folder above it.
func hidden(gone, seen map[string]bool, name string) bool {
	if _, ok := seen[name]; ok {
		return true
	}
	for at := name; at != "." && at != "/" && at != ""; at = path.Dir(at) {
		folder, ok := seen[at]
		if gone[at] || ok && !folder {
			return true
		}
	}
	return false
}

// bootable refuses what no machine can start from.
func (f *flat) bootable() error {
	if f.form == Extension {
		return nil
	}
	var kernels []string
	for _, w := range f.wins {
		for n := range w {
			if ok, _ := path.Match("usr/lib/modules/*/vmlinuz", n); ok {
				kernels = append(kernels, "/"+n)
			}
		}
	}
	sort.Strings(kernels)
	if len(kernels) != 1 {
		return fmt.Errorf("it cannot be booted: it has %d kernels in /usr/lib/modules/*/vmlinuz, and must have one %v", len(kernels), kernels)
	}
	return nil
}
