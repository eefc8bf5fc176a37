package bundlestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/text"
)

// Opened is a medium with a bundle on it, open for reading. Of its header only the
// label was read, until full is called.
type Opened struct {
	header *bundle.Header // what the label says
	begin  []byte         // the first bytes of the medium
	handle Handle
	size   int64

	once sync.Once
	file *bundlereader.File
	err  error
}

// Close lets go of the medium.
func (o *Opened) Close() error { return o.handle.Close() }

// full parses the whole header. The digest of the label was approved or signed by then,
// and is compared before anything is decoded: it stands for every byte of the header.
func (o *Opened) full() (*bundlereader.File, error) {
	o.once.Do(func() {
		o.file, o.err = bundlereader.OpenOf(o.header.Digest, o.handle, o.size)
		if o.err == nil {
			o.err = o.file.CheckSize()
		}
	})
	return o.file, o.err
}

// openMedium reads the label of what is on a medium. ErrNotBundle (package bundle) for
// whatever else is there: that is seen from the first bytes, which are a constant.
func openMedium(ctx context.Context, m media.Medium, open func(media.Medium) (Handle, int64, error), label LabelReader) (*Opened, error) {
	f, size, err := open(m)
	if err != nil {
		return nil, err
	}
	o := &Opened{handle: f, size: size}
	if err := o.read(ctx, label); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("medium %s: %w", m.Path, err)
	}
	return o, nil
}

func (o *Opened) read(ctx context.Context, label LabelReader) error {
	begin := make([]byte, bundle.BlockSize)
	n, err := o.handle.ReadAt(begin, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := bundle.HeaderSize(begin[:n]); err != nil || n == 0 {
		return bundle.ErrNotBundle
	}
	if label == nil {
		label = LocalLabel
	}
	l, err := label(ctx, o.handle)
	if err != nil {
		return err
	}
	if o.header, err = l.Header(); err != nil {
		return fmt.Errorf("%w: %w", errLabel, err)
	}
	if err := bundlereader.CheckSize(o.size, l.FileSize); err != nil {
		return err
	}
	o.begin = make([]byte, min(sameBytes, l.HeaderSize))
	_, err = o.handle.ReadAt(o.begin, 0)
	return err
}

// Policy is what this node was told it may load.
type Policy struct {
	// Approved digests.
	Approved []string
	// Accepted digests were allowed here before and are still held: an approval that
	// is withdrawn, or signatures that are required since, do not take them away. A
	// revocation does.
	Accepted []string
	Trust    model.Trust
	// Refit is the version of this agent.
	Refit string
}

// Decide says whether a bundle may be loaded here.
func (p Policy) Decide(h *bundle.Header) bundle.Decision {
	if slices.Contains(p.Accepted, h.Digest) {
		p.Trust.RequireSignatures = false
		p.Approved = append(slices.Clone(p.Approved), h.Digest)
	}
	return bundle.Decide(h, p.Approved, p.Trust, p.Refit)
}

// Finding is what the node's status says of a medium.
func Finding(m media.Medium, h *bundle.Header, d bundle.Decision) v1alpha1.Medium {
	out := v1alpha1.Medium{
		Device: m.Path, Digest: h.Digest, Name: h.Metadata.Name, Version: h.Metadata.Version, SignedBy: d.SignedBy,
		State: v1alpha1.MediumFound, Message: d.Verdict.Message,
	}
	// Nobody has said anything about bundles yet: found, waiting for a person.
	// Anything else that is not allowed is a refusal.
	if !d.Allowed && d.Verdict.Reason != v1alpha1.ReasonBundleNotApproved {
		out.State = v1alpha1.MediumRefused
	}
	return truncateMessage(out)
}

// Unreadable is what the status says of a medium that begins like a bundle and
// cannot be read as one.
func Unreadable(m media.Medium, err error) v1alpha1.Medium {
	out := v1alpha1.Medium{Device: m.Path, State: v1alpha1.MediumUnreadable, Message: err.Error()}
	var tooNew *bundle.TooNewError
	if errors.As(err, &tooNew) {
		out.State, out.Digest = v1alpha1.MediumRefused, tooNew.Digest
	}
	return truncateMessage(out)
}

// truncateMessage keeps the message within what the API takes.
func truncateMessage(m v1alpha1.Medium) v1alpha1.Medium {
	m.Message = text.Truncate(m.Message, longestMessage)
	return m
}

const longestMessage = 1024
