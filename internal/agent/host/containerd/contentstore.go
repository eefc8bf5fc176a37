package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// contentStore are the runtime's blobs.
type contentStore struct{ client contentapi.ContentClient }

// size is how many bytes a blob has. The runtime looks it up: a blob that it has no record of is not found.
func (s contentStore) size(ctx context.Context, dgst digest.Digest) (int64, error) {
	r, err := s.client.Info(ctx, &contentapi.InfoRequest{Digest: dgst.String()})
	if err != nil {
		return 0, err
	}
	return r.GetInfo().GetSize(), nil
}

// label sets labels of a blob; its others stay.
func (s contentStore) label(ctx context.Context, dgst digest.Digest, labels map[string]string) error {
	if len(labels) == 0 {
		return nil // to the runtime it would mean all fields
	}
	mask := &fieldmaskpb.FieldMask{}
	for name := range labels {
		mask.Paths = append(mask.Paths, "labels."+name)
	}
	_, err := s.client.Update(ctx, &contentapi.UpdateRequest{Info: &contentapi.Info{Digest: dgst.String(), Labels: labels}, UpdateMask: mask})
	return err
}

// linkLabels are the labels by which the runtime's garbage collector keeps blobs as long as the
// one that names them.
func linkLabels(children []ocispec.Descriptor) map[string]string {
	labels, seen := map[string]string{}, map[string]int{}
	for _, child := range children {
		for _, key := range images.ChildGCLabels(child) {
			n := seen[key]
			seen[key]++
			switch {
			case strings.HasSuffix(key, ".sha256."):
				key += child.Digest.Encoded()[:12]
			case n > 0 || strings.HasSuffix(key, "."):
				key += strconv.Itoa(n)
			}
			labels[key] = child.Digest.String()
		}
	}
	return labels
}

// abort ends a write that was not committed and drops its bytes.
func (s contentStore) abort(ctx context.Context, ref string) error {
	_, err := s.client.Abort(ctx, &contentapi.AbortRequest{Ref: ref})
	return err
}

// ReaderAt reads a blob of the runtime.
func (s contentStore) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	size, err := s.size(ctx, desc.Digest)
	if err != nil {
		return nil, err
	}
	return blobReader{ctx, s.client, desc.Digest, size}, nil
}

type blobReader struct {
	ctx    context.Context // content.ReaderAt takes none
	client contentapi.ContentClient
	digest digest.Digest
	size   int64
}

func (r blobReader) Size() int64  { return r.size }
func (r blobReader) Close() error { return nil }

func (r blobReader) ReadAt(p []byte, off int64) (n int, err error) {
	ctx, cancel := context.WithCancel(r.ctx) // ends the stream, which may have more than p takes
	defer cancel()
	s, err := r.client.Read(ctx, &contentapi.ReadContentRequest{Digest: r.digest.String(), Offset: off, Size: int64(len(p))})
	if err != nil {
		return 0, err
	}
	for n < len(p) {
		part, err := s.Recv()
		if err != nil {
			return n, nativeError(err)
		}
		n += copy(p[n:], part.GetData())
	}
	return n, nil
}

// Writer starts the write of a blob, or goes on with one that was cut off. The runtime answers
// that it exists if it has the blob.
func (s contentStore) Writer(ctx context.Context, opts ...content.WriterOpt) (content.Writer, error) {
	var o content.WriterOpts
	for _, set := range opts {
		if err := set(&o); err != nil {
			return nil, err
		}
	}
	stream, err := s.client.Write(ctx)
	if err != nil {
		return nil, err
	}
	w := &blobWriter{ref: o.Ref, stream: stream}
	r, err := w.send(&contentapi.WriteContentRequest{Action: contentapi.WriteAction_STAT, Ref: o.Ref, Total: o.Desc.Size, Expected: o.Desc.Digest.String()})
	if err != nil {
		return nil, err
	}
	w.offset = r.GetOffset()
	return w, nil
}

// blobWriter writes one blob. It waits for the runtime's answer to each part.
type blobWriter struct {
	ref    string
	stream contentapi.Content_WriteClient
	offset int64
	digest digest.Digest
	closed bool
}

func (w *blobWriter) send(req *contentapi.WriteContentRequest) (*contentapi.WriteContentResponse, error) {
	// The send of a stream that the runtime ended says only that; its answer says why.
	if err := w.stream.Send(req); err != nil && !errors.Is(err, io.EOF) {
		return nil, nativeError(err)
	}
	r, err := w.stream.Recv()
	if err != nil {
		return nil, nativeError(err)
	}
	if r.GetDigest() != "" {
		w.digest = digest.Digest(r.GetDigest())
	}
	return r, nil
}

func (w *blobWriter) Status() (content.Status, error) {
	r, err := w.send(&contentapi.WriteContentRequest{Action: contentapi.WriteAction_STAT})
	if err != nil {
		return content.Status{}, err
	}
	return content.Status{Ref: w.ref, Offset: r.GetOffset(), Total: r.GetTotal()}, nil
}

func (w *blobWriter) Digest() digest.Digest { return w.digest }

func (w *blobWriter) Write(p []byte) (n int, err error) {
	for part := range slices.Chunk(p, maxMessage/2) {
		r, err := w.send(&contentapi.WriteContentRequest{Action: contentapi.WriteAction_WRITE, Offset: w.offset, Data: part})
		if err != nil {
			return n, err
		}
		written := int(r.GetOffset() - w.offset)
		w.offset += int64(written)
		n += written
		if written < len(part) {
			return n, io.ErrShortWrite
		}
	}
	return n, nil
}

// Commit makes the runtime verify the blob and keep it.
func (w *blobWriter) Commit(_ context.Context, size int64, expected digest.Digest, opts ...content.Opt) error {
	defer w.Close()
	var info content.Info
	for _, set := range opts {
		if err := set(&info); err != nil {
			return err
		}
	}
	r, err := w.send(&contentapi.WriteContentRequest{Action: contentapi.WriteAction_COMMIT, Total: size, Offset: w.offset, Expected: expected.String(), Labels: info.Labels})
	if err != nil {
		return err
	}
	if size != 0 && r.GetOffset() != size {
		return fmt.Errorf("the runtime has %d bytes of the blob, not %d", r.GetOffset(), size)
	}
	if expected != "" && r.GetDigest() != expected.String() {
		return fmt.Errorf("the runtime has a blob with digest %s, not %s", r.GetDigest(), expected)
	}
	return nil
}

func (w *blobWriter) Truncate(size int64) error {
	w.offset = size
	return nil
}

// Close ends the write. It returns when the runtime ended it too: then the next writer of the blob
// does not find it locked.
func (w *blobWriter) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	err := w.stream.CloseSend()
	for ended := err; ended == nil; {
		_, ended = w.stream.Recv() // an error of the write was returned by the call that made it
	}
	return nativeError(err)
}
