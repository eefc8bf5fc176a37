package coldstart

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Folder is the directory from which a distribution imports images. One unit of it starts the
// container runtime and the kubelet, so that no check can run between them.
type Folder struct {
	// Images is that directory, Store the root of the runtime.
	Images, Store string
}

// Names of what Fill writes: the distribution imports files that end in .tar.
const (
	archivePrefix = "refit-"
	archiveSuffix = ".tar"
	unfinished    = ".unfinished"
)

// metadata of containerd, below its root: without it containerd knows no image.
const metadata = "io.containerd.metadata.v1.bolt/meta.db"

// spaceOfImage is how many times the bytes of an image are needed at most: in its archive, in
// the runtime's content store, and unpacked.
const spaceOfImage = 4

// Fill writes an archive of each pinned image that this node has a copy of, if the runtime has
// lost its store. It returns their names. The runtime must not run.
//
// It keeps no node down: an image that cannot be written is left out, and loaded after the start.
func (f Folder) Fill(ctx context.Context, o Options) (names []string, err error) {
	if st, err := os.Stat(filepath.Join(f.Store, metadata)); err == nil && st.Size() > 0 {
		return nil, f.Clear()
	}
	if err := f.Clear(); err != nil {
		return nil, err
	}
	c := &check{Options: o, started: time.Now()}
	w := desired.ReadFile(o.Config.Path("want.json"), c.recordProblem)
	if w == nil {
		return nil, nil
	}
	c.readState(w)
	if err := os.MkdirAll(f.Images, 0o755); err != nil {
		return nil, fmt.Errorf("directory of images: %w", err)
	}
	room, err := fsutil.RoomAt(f.Images)
	if err != nil {
		return nil, err
	}
	return f.writeAll(ctx, c, c.verified(w.Pins.Images), room.Free/spaceOfImage)
}

// writeAll writes the archives of images with at most left bytes in all: the distribution imports them
// after the last is written.
func (f Folder) writeAll(ctx context.Context, c *check, images []model.PinSetImage, left int64) (names []string, err error) {
	for _, img := range images {
		target, ok := c.src.Image(img)
		if img.Registry || !ok {
			continue
		}
		if err := f.write(ctx, c, img, target, &left); err != nil {
			c.Log.Error("image left out of the distribution's directory; it is loaded after the start", "image", img.Name, "error", err)
			if ctx.Err() != nil {
				return names, ctx.Err()
			}
			continue
		}
		names = append(names, img.Name)
	}
	return names, nil
}

// Clear removes the archives that Fill wrote, whole or not.
func (f Folder) Clear() error {
	all, err := filepath.Glob(filepath.Join(f.Images, archivePrefix+"*"))
	for _, path := range all {
		name := strings.TrimSuffix(filepath.Base(path), unfinished)
		if hex, ok := strings.CutSuffix(strings.TrimPrefix(name, archivePrefix), archiveSuffix); ok && digest.NewDigestFromEncoded(digest.SHA256, hex).Validate() == nil {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// write makes the archive of an image visible when it is whole, if it has at most left bytes. It is not synced: after another
// power cut the store is checked again, and a distribution passes over a torn archive.
func (f Folder) write(ctx context.Context, c *check, img model.PinSetImage, target cri.Target, left *int64) error {
	blobs, size, err := c.blobsOf(img)
	if err != nil {
		return err
	}
	if size > *left {
		return fmt.Errorf("the image has %d bytes, and %d are left: %w", size, *left, errNoRoom)
	}
	*left -= size
	path := filepath.Join(f.Images, archivePrefix+strings.TrimPrefix(keyDigest(img), "sha256:")+archiveSuffix)
	out, err := os.OpenFile(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(c.archive(ctx, out, target, blobs), out.Close())
	if err == nil {
		err = os.Rename(path+unfinished, path)
	}
	if err != nil {
		_ = os.Remove(path + unfinished)
	}
	return err
}

var errNoRoom = errors.New("too little room for the archives, layers and files of all images")

// keyDigest names an image's archive: two names of one image have two.
func keyDigest(img model.PinSetImage) string { return digest.FromString(pin.Key(img)).String() }

// blobsOf are the blobs of an image for this platform with their sizes in all.
func (c *check) blobsOf(img model.PinSetImage) (blobs []string, size int64, err error) {
	blobs = pin.ImageDigests(img.Digest, platform(), c.lib.Shelf(img.Bundle).ReadSmall)
	for _, d := range blobs {
		path, err := c.lib.Blobs().Path(d)
		if err != nil {
			return nil, 0, err
		}
		st, err := os.Stat(path)
		if err != nil {
			return nil, 0, err
		}
		size += st.Size()
	}
	return blobs, size, nil
}

// archive is an OCI layout with both names of an image, as containerd imports it.
func (c *check) archive(ctx context.Context, out io.Writer, target cri.Target, blobs []string) error {
	var index ocispec.Index
	index.SchemaVersion, index.MediaType = 2, ocispec.MediaTypeImageIndex
	for _, name := range []string{target.Name, target.Repository() + "@" + target.Digest} {
		index.Manifests = append(index.Manifests, ocispec.Descriptor{MediaType: target.MediaType, Digest: digest.Digest(target.Digest), Size: target.Size,
			Annotations: map[string]string{"io.containerd.image.name": name}})
	}
	w := tar.NewWriter(out)
	for _, small := range []struct {
		name string
		v    any
	}{{ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}}, {ocispec.ImageIndexFile, index}} {
		b, err := json.Marshal(small.v)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: small.name, Mode: 0o644, Size: int64(len(b))}); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	for _, d := range blobs {
		if err := c.archiveBlob(ctx, w, d); err != nil {
			return err
		}
	}
	return w.Close()
}

// archiveBlob copies a blob, and compares it with its digest meanwhile.
func (c *check) archiveBlob(ctx context.Context, w *tar.Writer, want string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f, err := c.lib.Blobs().Open(want)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	d := digest.Digest(want)
	if err := w.WriteHeader(&tar.Header{Name: "blobs/sha256/" + d.Encoded(), Mode: 0o644, Size: st.Size()}); err != nil {
		return err
	}
	sum := d.Verifier()
	if _, err := io.Copy(w, io.TeeReader(f, sum)); err != nil {
		return err
	}
	if !sum.Verified() {
		return fmt.Errorf("blob %s of this node's own copy is damaged", want)
	}
	return nil
}
