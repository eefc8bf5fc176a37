package coldstart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// smallFile is what is read whole at every start: manifests and configurations,
// without which a runtime does not even list an image.
const smallFile = 1 << 20

// tries is how often an image's parts are listed again after some were put back:
// behind a torn index is a manifest, behind that a configuration.
const tries = 6

// image makes one image whole where it lies. why says what keeps it torn; an image
// that is not there is not torn.
func (c *check) image(ctx context.Context, img model.HeldImage) (why string, err error) {
	target := cri.Target{Name: img.Name, Digest: img.Digest}
	mended := false
	for range tries {
		parts, listed := c.parts(ctx, target)
		if errors.Is(listed, cri.ErrNoImage) {
			return "", nil
		}
		bad, err := c.compare(ctx, parts)
		switch {
		case err != nil:
			return "", err
		case len(bad) == 0 && listed != nil:
			return c.again(ctx, img, listed)
		case len(bad) == 0:
			if mended {
				c.restored(img, "what was torn was written anew from this node's copy")
			}
			return "", nil
		}
		if why, err := c.mendAll(ctx, img, bad, parts); err != nil {
			return "", err
		} else if why != "" { // a piece that no bundle brings; the whole image may be here all the same
			return c.again(ctx, img, errors.New(why))
		}
		mended = true
		if err := c.Runtime.Refresh(ctx, target); err != nil {
			return "", err
		}
	}
	return c.again(ctx, img, errors.New("it is not what it must be after it was written anew"))
}

// parts lists an image's parts.
func (c *check) parts(ctx context.Context, target cri.Target) ([]cri.Part, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return c.Runtime.Parts(ctx, target)
}

// unwritable reports whether a disk takes no write. A runtime's answer has no error
// numbers, only their texts.
func unwritable(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS} {
		if errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) {
			return true
		}
	}
	return false
}

// again has an image loaded anew whose store has lost its way from one part to the
// next. What the runtime itself has loaded in this run is not judged a second time: it
// was compared when it came in, and what differs then is a store that we do not know.
func (c *check) again(ctx context.Context, img model.HeldImage, because error) (why string, err error) {
	if unwritable(because) {
		// The runtime needs room to list layers, and none of it says anything about the
		// image. To take it out would lose it: there is no room to load it either.
		return "", because
	}
	if _, err := c.Runtime.Present(ctx); err != nil {
		return "", err // it does not answer: nothing is known of the image
	}
	if c.reloaded[img.Name] {
		c.Log.Error("an image was loaded anew and still is not what was compared with: it is taken as the runtime has it", "image", img.Name, "error", because)
		return "", nil
	}
	c.damage(img, because.Error())
	if _, ok := c.src.Image(img); !ok {
		return because.Error(), nil
	}
	c.reloaded[img.Name] = true
	return "", c.Runtime.Remove(ctx, img.Name)
}

func (c *check) damage(img model.HeldImage, what string) {
	c.torn[img.Name] = true
	said := img.Name + ": " + what
	if slices.Contains(c.report.Damage, said) {
		return
	}
	c.Log.Warn("image damaged", "image", img.Name, "error", what)
	c.report.Damage = append(c.report.Damage, said)
}

// torn is a part that is not as it must be.
type torn struct {
	cri.Part
	what string
}

// compare finds the parts that are not whole.
func (c *check) compare(ctx context.Context, parts []cri.Part) (bad []torn, err error) {
	for _, p := range parts {
		at := p.File + p.Dir
		if c.whole[at] {
			continue
		}
		var what string
		if p.Dir != "" {
			what, err = c.layer(ctx, p, parts)
		} else {
			what, err = c.file(p)
		}
		if err != nil {
			return nil, err
		}
		if c.whole[at] = what == ""; what != "" {
			bad = append(bad, torn{p, what})
		}
	}
	return bad, nil
}

func (c *check) file(p cri.Part) (what string, err error) {
	st, err := os.Stat(p.File)
	if errors.Is(err, fs.ErrNotExist) {
		return "blob " + p.Digest + " is missing", nil
	}
	if err != nil {
		return "", err
	}
	if p.Size > 0 && st.Size() != p.Size {
		return fmt.Sprintf("blob %s has %d bytes instead of %d", p.Digest, st.Size(), p.Size), nil
	}
	// A file of no bytes is whole if its digest says so: CRI-O's store has such.
	if !c.deep && st.Size() > smallFile {
		return "", nil
	}
	got, err := fsutil.Digest(p.File)
	if err != nil || got != p.Digest {
		return fmt.Sprintf("blob %s has another content (%s%v)", p.Digest, got, err), nil //nolint:nilerr // what cannot be read is torn
	}
	c.report.Files, c.report.Bytes = c.report.Files+1, c.report.Bytes+st.Size()
	return "", nil
}

func (c *check) layer(ctx context.Context, p cri.Part, parts []cri.Part) (what string, err error) {
	x, err := c.indexOf(ctx, p.Digest, parts)
	if x == nil && err != nil {
		return "", err
	}
	if x == nil {
		c.report.Unchecked++
		return "", nil
	}
	d, err := x.Check(ctx, p.Dir, c.deep)
	if err != nil {
		return "", err
	}
	c.report.Layers, c.report.Files, c.report.Bytes = c.report.Layers+1, c.report.Files+d.Files, c.report.Bytes+d.Bytes
	if d.Any() {
		return fmt.Sprintf("layer %s: %s", p.Digest, d), nil
	}
	return "", nil
}

// indexOf is what a layer must consist of; nil if nobody here knows.
func (c *check) indexOf(ctx context.Context, digest string, parts []cri.Part) (LayerIndex, error) {
	if x, err := c.index.Load(digest); err == nil {
		return x, nil
	}
	f, err := c.blob(digest, parts)
	if f == nil || err != nil {
		return nil, err
	}
	defer f.Close()
	return makeIndex(ctx, c.index, digest, f)
}

// makeIndex reads a blob into an index and keeps that; nil if the blob is not what
// its digest says. An index that cannot be kept comes with the error.
func makeIndex(ctx context.Context, shelf LayerIndexDir, digest string, f *os.File) (LayerIndex, error) {
	if !holds(f, digest) {
		return nil, nil
	}
	x, err := IndexLayer(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", digest, err)
	}
	return x, shelf.Save(digest, x)
}

// holds reports whether a file has the digest, and goes back to its begin.
func holds(f *os.File, digest string) bool {
	got, err := fsutil.DigestOf(f)
	if err != nil || got != digest {
		return false
	}
	_, err = f.Seek(0, io.SeekStart)
	return err == nil
}

// blob opens a whole blob: this node's copy, or the runtime's own.
func (c *check) blob(digest string, parts []cri.Part) (*os.File, error) {
	if f, err := c.lib.Blobs().Open(digest); err == nil {
		if holds(f, digest) {
			return f, nil
		}
		_ = f.Close()
		c.rotten(digest)
	}
	i := slices.IndexFunc(parts, func(p cri.Part) bool { return p.Digest == digest && p.File != "" })
	if i < 0 {
		return nil, nil
	}
	f, err := os.Open(parts[i].File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !holds(f, digest) {
		return nil, f.Close()
	}
	return f, nil
}

// rotten takes a blob of the copy out of service, so that it is fetched again.
func (c *check) rotten(digest string) {
	for _, d := range c.lib.Digests() {
		s := c.lib.Shelf(d)
		for i, b := range s.Bundle().Metadata.Blobs {
			if b.Digest == digest {
				c.Log.Warn("this node's copy of a blob has rotted and is fetched again", "blob", digest, "chunks", s.Recheck([]int{i}))
			}
		}
	}
}

func (c *check) mendAll(ctx context.Context, img model.HeldImage, bad []torn, parts []cri.Part) (why string, err error) {
	for _, p := range bad {
		if why, err = c.mend(ctx, img, p, parts); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// mend writes a part anew. why is set if nobody here has a copy; any other
// obstacle is an error, and tried again.
func (c *check) mend(ctx context.Context, img model.HeldImage, p torn, parts []cri.Part) (why string, err error) {
	c.damage(img, p.what)
	f, err := c.blob(p.Digest, parts)
	if err != nil {
		return "", err
	}
	if f == nil {
		return p.what + "; this node has no whole copy of it", nil
	}
	defer f.Close()
	if p.File != "" {
		mode := fs.FileMode(0o444)
		if st, err := os.Stat(p.File); err == nil {
			mode = st.Mode().Perm()
		}
		if err := os.MkdirAll(filepath.Dir(p.File), 0o755); err != nil {
			return "", err
		}
		return "", fsutil.Replace(p.File, f, p.Digest, mode)
	}
	if err := RestoreLayer(ctx, p.Dir, f, p.Digest, p.Base); err != nil {
		return "", err
	}
	return "", fsutil.SyncFS(p.Dir)
}

// source is the library as package pin sees it: only what is here.
type source struct {
	lib    *bundlestore.Library
	policy bundlestore.Policy
}

// Image is a held image whose blobs are all here, of a bundle that is allowed.
func (s source) Image(img model.HeldImage) (cri.Target, bool) {
	shelf := s.lib.Shelf(img.Bundle)
	if shelf == nil || !s.policy.Decide(shelf.Bundle()).Allowed {
		return cri.Target{}, false
	}
	return shelf.Target(img, platform())
}

// MayPull: nothing comes from a registry before the kubelet starts.
func (s source) MayPull(model.HeldImage) bool { return false }

func (s source) Open(digest string) (io.ReadCloser, error) { return s.lib.Open(digest) }
