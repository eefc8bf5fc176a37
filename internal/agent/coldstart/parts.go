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

// alwaysReadSize is the size up to which every start reads a file completely: manifests and
// configurations, without which a runtime does not even list an image.
const alwaysReadSize = 1 << 20

// partTries is how often the parts of an image are listed again after a repair: behind a
// torn index is a manifest, behind that a configuration.
const partTries = 6

// repairImage repairs one image in place. why says what keeps it torn; an image that is not
// in the runtime is not torn.
func (c *check) repairImage(ctx context.Context, img model.PinSetImage) (why string, err error) {
	target := cri.Target{Name: img.Name, Digest: img.Digest}
	repaired := false
	for range partTries {
		parts, listed := c.parts(ctx, target)
		if errors.Is(listed, cri.ErrNoImage) {
			return "", nil
		}
		bad, err := c.findTorn(ctx, parts)
		switch {
		case err != nil:
			return "", err
		case len(bad) == 0 && listed != nil:
			return c.reloadImage(ctx, img, listed)
		case len(bad) == 0:
			if repaired {
				c.recordRestored(img, "torn parts were rewritten from this node's copy")
			}
			return "", nil
		}
		if why, err := c.repairParts(ctx, img, bad, parts); err != nil {
			return "", err
		} else if why != "" { // no bundle has this part; the whole image may still be here
			return c.reloadImage(ctx, img, errors.New(why))
		}
		repaired = true
		if err := c.Runtime.Refresh(ctx, target); err != nil {
			return "", err
		}
	}
	return c.reloadImage(ctx, img, errors.New("it still differs after it was rewritten"))
}

// parts lists an image's parts.
func (c *check) parts(ctx context.Context, target cri.Target) ([]cri.Part, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return c.Runtime.Parts(ctx, target)
}

// isDiskUnwritable reports whether a disk refuses writes. The runtime's answers have only
// the texts of errors, no numbers.
func isDiskUnwritable(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS} {
		if errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) {
			return true
		}
	}
	return false
}

// reloadImage reloads an image whose parts the store cannot follow from one to the next. It
// does not check again what the runtime itself loaded in this run: that was compared when it
// was loaded, so a difference means a store of an unknown form.
func (c *check) reloadImage(ctx context.Context, img model.PinSetImage, cause error) (why string, err error) {
	if isDiskUnwritable(cause) {
		// The runtime needs free space to list layers, so this says nothing about the image.
		// Removing the image would lose it: there is no space to load it again either.
		return "", cause
	}
	if _, err := c.Runtime.Present(ctx); err != nil {
		return "", err // no answer: the image's state is unknown
	}
	if c.reloaded[img.Name] {
		c.Log.Error("reloaded image still differs from its digests; using it as the runtime has it", "image", img.Name, "error", cause)
		return "", nil
	}
	c.recordDamage(img, cause.Error())
	if _, ok := c.src.Image(img); !ok {
		return cause.Error(), nil
	}
	c.reloaded[img.Name] = true
	return "", c.Runtime.Remove(ctx, img.Name)
}

func (c *check) recordDamage(img model.PinSetImage, what string) {
	c.torn[img.Name] = true
	said := img.Name + ": " + what
	if slices.Contains(c.report.Damage, said) {
		return
	}
	c.Log.Warn("image damaged", "image", img.Name, "error", what)
	c.report.Damage = append(c.report.Damage, said)
}

// tornPart is a part that differs from what it must be.
type tornPart struct {
	cri.Part
	what string
}

// findTorn finds the parts that are not intact.
func (c *check) findTorn(ctx context.Context, parts []cri.Part) (bad []tornPart, err error) {
	for _, p := range parts {
		at := p.File + p.Dir
		if c.intact[at] {
			continue
		}
		var what string
		if p.Dir != "" {
			what, err = c.checkLayer(ctx, p, parts)
		} else {
			what, err = c.checkBlob(p)
		}
		if err != nil {
			return nil, err
		}
		if c.intact[at] = what == ""; what != "" {
			bad = append(bad, tornPart{p, what})
		}
	}
	return bad, nil
}

func (c *check) checkBlob(p cri.Part) (what string, err error) {
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
	// A file of no bytes is intact if its digest says so: CRI-O's store has such files.
	if !c.deep && st.Size() > alwaysReadSize {
		return "", nil
	}
	got, err := fsutil.Digest(p.File)
	if err != nil || got != p.Digest {
		return fmt.Sprintf("blob %s has another content (%s%v)", p.Digest, got, err), nil //nolint:nilerr // an unreadable file is torn
	}
	c.report.Files, c.report.Bytes = c.report.Files+1, c.report.Bytes+st.Size()
	return "", nil
}

func (c *check) checkLayer(ctx context.Context, p cri.Part, parts []cri.Part) (what string, err error) {
	x, err := c.layerIndex(ctx, p.Digest, parts)
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
	if d.Found() {
		return fmt.Sprintf("layer %s: %s", p.Digest, d), nil
	}
	return "", nil
}

// layerIndex is the required content of a layer; nil if this node does not know it.
func (c *check) layerIndex(ctx context.Context, digest string, parts []cri.Part) (LayerIndex, error) {
	if x, err := c.index.Load(digest); err == nil {
		return x, nil
	}
	f, err := c.openBlob(digest, parts)
	if f == nil || err != nil {
		return nil, err
	}
	defer f.Close()
	return createIndex(ctx, c.index, digest, f)
}

// createIndex reads a blob into an index and saves that; nil if the blob does not match its
// digest. An index that cannot be saved is returned with the error.
func createIndex(ctx context.Context, shelf LayerIndexDir, digest string, f *os.File) (LayerIndex, error) {
	if !matchesDigest(f, digest) {
		return nil, nil
	}
	x, err := IndexLayer(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", digest, err)
	}
	return x, shelf.Save(digest, x)
}

// matchesDigest reports whether a file has the digest, and seeks to its start.
func matchesDigest(f *os.File, digest string) bool {
	got, err := fsutil.DigestOf(f)
	if err != nil || got != digest {
		return false
	}
	_, err = f.Seek(0, io.SeekStart)
	return err == nil
}

// openBlob opens an intact blob: this node's copy, or the runtime's own.
func (c *check) openBlob(digest string, parts []cri.Part) (*os.File, error) {
	if f, err := c.lib.Blobs().Open(digest); err == nil {
		if matchesDigest(f, digest) {
			return f, nil
		}
		_ = f.Close()
		c.recheckBlob(digest)
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
	if !matchesDigest(f, digest) {
		return nil, f.Close()
	}
	return f, nil
}

// recheckBlob takes a corrupt blob of this node's copy out of service, so that it is fetched
// again.
func (c *check) recheckBlob(digest string) {
	for _, d := range c.lib.Digests() {
		s := c.lib.Shelf(d)
		for i, b := range s.Bundle().Metadata.Blobs {
			if b.Digest == digest {
				c.Log.Warn("this node's copy of a blob is corrupt; fetching it again", "blob", digest, "chunks", s.Recheck([]int{i}))
			}
		}
	}
}

func (c *check) repairParts(ctx context.Context, img model.PinSetImage, bad []tornPart, parts []cri.Part) (why string, err error) {
	for _, p := range bad {
		if why, err = c.repairPart(ctx, img, p, parts); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// repairPart rewrites a part. why is set if this node has no copy; any other obstacle is an
// error, and retried.
func (c *check) repairPart(ctx context.Context, img model.PinSetImage, p tornPart, parts []cri.Part) (why string, err error) {
	c.recordDamage(img, p.what)
	f, err := c.openBlob(p.Digest, parts)
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

// source is the library as imagekeeper sees it: only what is on this node.
type source struct {
	lib    *bundlestore.Library
	policy bundlestore.Policy
}

// Image is a pinned image of an allowed bundle whose blobs are all here.
func (s source) Image(img model.PinSetImage) (cri.Target, bool) {
	shelf := s.lib.Shelf(img.Bundle)
	if shelf == nil || !s.policy.Decide(shelf.Bundle()).Allowed {
		return cri.Target{}, false
	}
	return shelf.Target(img, platform())
}

// Refuses nothing: images whose signatures the agent has not verified are not in the list.
func (s source) Refuses(model.PinSetImage) bool { return false }

// MayPull is false: nothing comes from a registry before the kubelet starts.
func (s source) MayPull(model.PinSetImage) bool { return false }

func (s source) Open(digest string) (io.ReadCloser, error) { return s.lib.Open(digest) }
