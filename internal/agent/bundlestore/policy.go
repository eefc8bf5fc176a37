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

// Opened is a medium with a bundle on it, open for reading. Only the label of its header is
// read until readHeader is called.
type Opened struct {
	header *bundle.Header // what the label says
	begin  []byte         // the first bytes of the medium
	handle Handle
	size   int64

	once sync.Once
	file *bundlereader.File
	err  error
}

// Close closes the medium.
func (o *Opened) Close() error { return o.handle.Close() }

// readHeader parses the whole header. The label's digest was approved or signed by then, and
// is compared before anything is decoded: it covers every byte of the header.
func (o *Opened) readHeader() (*bundlereader.File, error) {
	o.once.Do(func() {
		o.file, o.err = bundlereader.OpenOf(o.header.Digest, o.handle, o.size)
		if o.err == nil {
			o.err = o.file.CheckSize()
		}
	})
	return o.file, o.err
}

// openMedium reads the label on a medium. It returns ErrNotBundle (package bundle) for any
// other content: the first bytes of a bundle are a constant.
func openMedium(ctx context.Context, m media.Medium, open func(media.Medium) (Handle, int64, error), label LabelReader) (*Opened, error) {
	f, size, err := open(m)
	if err != nil {
		return nil, err
	}
	o := &Opened{handle: f, size: size}
	if err := o.readLabel(ctx, label); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("medium %s: %w", m.Path, err)
	}
	return o, nil
}

func (o *Opened) readLabel(ctx context.Context, label LabelReader) error {
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
	o.begin = make([]byte, min(comparedBytes, l.HeaderSize))
	_, err = o.handle.ReadAt(o.begin, 0)
	return err
}

// Policy is which bundles this node may load.
type Policy struct {
	// Approved digests.
	Approved []string
	// Accepted digests were allowed here before and are still pinned: a withdrawn
	// approval, or a later requirement of signatures, does not remove them. A revocation
	// does.
	Accepted []string
	Trust    model.Trust
	// Refit is the version of this agent.
	Refit string
}

// Decide reports whether a bundle may be loaded here.
func (p Policy) Decide(h *bundle.Header) bundle.Decision {
	if slices.Contains(p.Accepted, h.Digest) {
		p.Trust.RequireSignatures = false
		p.Approved = append(slices.Clone(p.Approved), h.Digest)
	}
	return bundle.Decide(h, p.Approved, p.Trust, p.Refit)
}

// Finding describes a medium for the node's status.
func Finding(m media.Medium, h *bundle.Header, d bundle.Decision) v1alpha1.Medium {
	out := v1alpha1.Medium{
		Device: m.Path, Digest: h.Digest, Name: h.Metadata.Name, Version: h.Metadata.Version, SignedBy: d.SignedBy,
		State: v1alpha1.MediumFound, Message: d.Blocker.Message,
	}
	// A bundle without any approval is found, and waits for a person. Any other bundle
	// that is not allowed is refused.
	if !d.Allowed && d.Blocker.Reason != v1alpha1.ReasonBundleNotApproved {
		out.State = v1alpha1.MediumRefused
	}
	return truncateMessage(out)
}

// Unreadable describes for the status a medium that starts like a bundle and cannot be read
// as one.
func Unreadable(m media.Medium, err error) v1alpha1.Medium {
	out := v1alpha1.Medium{Device: m.Path, State: v1alpha1.MediumUnreadable, Message: err.Error()}
	var tooNew *bundle.TooNewError
	if errors.As(err, &tooNew) {
		out.State, out.Digest = v1alpha1.MediumRefused, tooNew.Digest
	}
	return truncateMessage(out)
}

// truncateMessage shortens the message to the limit of the API.
func truncateMessage(m v1alpha1.Medium) v1alpha1.Medium {
	m.Message = text.Truncate(m.Message, maxMessage)
	return m
}

const maxMessage = 1024
