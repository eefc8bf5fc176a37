package bundledelta

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// tokenShare is which part of a layer its tokens may take, as 1/tokenShare, if there is an encoder that
// packs the layer as well. They take less time, and no other version of an encoder makes other bytes of
// them.
const tokenShare = 12

// packLayer finds out how the content of a layer is packed to the same bytes: from then on p has tokens, or a recipe, or
// neither. It returns more streams of the patch.
func (c *creator) packLayer(i int, blob bundle.Blob, p *patch, content []byte, old *os.File) (streams, error) {
	parts, err := c.tokenPatch(i, blob, p, content, old)
	if err != nil || p.Tokens != nil && p.Tokens.length()+p.Tokens.Frames <= blob.Size/tokenShare {
		return parts, err
	}
	if p.Gzip, err = findRecipe(content, c.packedBlob(i, blob), blob.Size); err != nil || p.Gzip == nil {
		return parts, err
	}
	parts.close()
	p.Tokens = nil
	for n := range p.Refs {
		p.Refs[n].Tokens = 0
	}
	return nil, nil
}

// packedBlob has the bytes of a blob of the target.
func (c *creator) packedBlob(i int, blob bundle.Blob) *io.SectionReader {
	return io.NewSectionReader(c.target.Unverified(), c.target.Header().BlobOffset(i), blob.Size)
}

// tokenPatch adds the tokens of a layer to a patch, if they make the same bytes.
func (c *creator) tokenPatch(i int, blob bundle.Blob, p *patch, content []byte, old *os.File) (parts streams, err error) {
	f, err := fsutil.Unnamed(c.dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	frames, err := newStream(c.ctx, c.dir, blob.Size, tokenWindow)
	if err != nil {
		return nil, err
	}
	parts = streams{frames}
	w := &frameWriter{w: frames}
	err = inflate(withContext{c.ctx, c.packedBlob(i, blob)}, newComparer(bytes.NewReader(content), p.Size), f, w)
	if err = errors.Join(err, w.err); err != nil {
		return parts, unlessForeign(err)
	}
	t := &tokenPatch{}
	if t.Frames, err = frames.end(); err != nil {
		return parts, err
	}
	if t.Size, err = f.Seek(0, io.SeekEnd); err != nil || t.Size == 0 {
		return parts, err
	}
	tokens, unmap, err := fsutil.Map(f, t.Size)
	if err != nil {
		return parts, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	if err := c.checkTokens(i, blob, content, tokens, frames.f); err != nil {
		return parts, unlessForeign(err)
	}
	more, err := c.diffTokens(p, t, tokens, old)
	if err == nil {
		p.Tokens = t
	}
	return append(more, frames), err
}

// checkTokens packs a layer as nodes do, and compares it.
func (c *creator) checkTokens(i int, blob bundle.Blob, content, tokens []byte, frames *os.File) error {
	z, err := newDecoder(frames, tokenWindow)
	if err != nil {
		return err
	}
	defer z.Close()
	out := newComparer(c.packedBlob(i, blob), blob.Size)
	r := newRepacker(out, bytes.NewReader(tokens), z)
	if _, err := io.CopyBuffer(r, withContext{c.ctx, bytes.NewReader(content)}, make([]byte, bufferSize)); err != nil {
		return err
	}
	if err := r.Close(); err != nil {
		return err
	}
	if out.left > 0 {
		return errDiffers
	}
	_, err = frames.Seek(0, io.SeekStart)
	return err
}

// diffTokens makes the streams of the tokens.
func (c *creator) diffTokens(p *patch, t *tokenPatch, tokens []byte, old *os.File) (streams, error) {
	f, err := fsutil.Unnamed(c.dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at, size := int64(0), int64(0)
	for n := range p.Refs {
		r := &p.Refs[n]
		if r.Packed == packedGzip {
			content := newComparer(io.NewSectionReader(old, at, r.Size), r.Size)
			to := &countWriter{w: io.NewOffsetWriter(f, size)}
			err := inflate(withContext{c.ctx, c.base.Blob(r.Blob)}, content, to, nil)
			if err := unlessForeign(err); err != nil {
				return nil, err
			}
			if err == nil && content.left == 0 {
				r.Tokens = to.n
			}
		}
		at, size = at+r.Size, size+r.Tokens
	}
	return c.diff(&t.differences, f, size, tokens, tokenWindow)
}

// unlessForeign drops the error of a layer that this program cannot make of tokens.
func unlessForeign(err error) error {
	for _, is := range []error{errDeflate, errNoRecipe, errDiffers, errTokens, errFrame} {
		if errors.Is(err, is) {
			return nil
		}
	}
	return err
}
