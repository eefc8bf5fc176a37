package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/host/media"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/read"
)

// Opened is a medium with a bundle on it, open for reading.
type Opened struct {
	Medium media.Medium
	File   *read.File
	close  func() error
}

// Close lets go of the medium.
func (o *Opened) Close() error { return o.close() }

// OpenMedium reads the header of what is on a medium. ErrNotBundle (package
// bundle) for whatever else is there.
func OpenMedium(m media.Medium) (*Opened, error) {
	f, size, err := media.Open(m)
	if err != nil {
		return nil, err
	}
	b, err := read.Open(f, size)
	if err == nil {
		err = b.CheckSize()
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("medium %s: %w", m.Path, err)
	}
	return &Opened{Medium: m, File: b, close: f.Close}, nil
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
	return cut(out)
}

// Unreadable is what the status says of a medium that begins like a bundle and
// cannot be read as one.
func Unreadable(m media.Medium, err error) v1alpha1.Medium {
	out := v1alpha1.Medium{Device: m.Path, State: v1alpha1.MediumUnreadable, Message: err.Error()}
	var tooNew *bundle.TooNewError
	if errors.As(err, &tooNew) {
		out.State, out.Digest = v1alpha1.MediumRefused, tooNew.Digest
	}
	return cut(out)
}

// cut keeps the message within what the API takes.
func cut(m v1alpha1.Medium) v1alpha1.Medium {
	const most = 1024
	if len(m.Message) > most {
		m.Message = m.Message[:most-3] + "..."
	}
	return m
}
