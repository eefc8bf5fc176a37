package bundlestore

import (
	"errors"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/text"
)

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

// Finding describes a bundle on a medium for the node's status. path names both.
func Finding(path string, h *bundle.Header, d bundle.Decision) v1alpha1.Medium {
	out := v1alpha1.Medium{
		Device: path, Digest: h.Digest, Name: h.Metadata.Name, Version: h.Metadata.Version, SignedBy: d.SignedBy,
		State: v1alpha1.MediumFound, Message: d.Blocker.Message,
	}
	// A bundle without any approval is found, and waits for a person. Any other bundle
	// that is not allowed is refused.
	if !d.Allowed && d.Blocker.Reason != v1alpha1.ReasonBundleNotApproved {
		out.State = v1alpha1.MediumRefused
	}
	return truncateMessage(out)
}

// Unreadable describes for the status a medium, or a file on one, that starts like a bundle and
// cannot be read as one.
func Unreadable(path string, err error) v1alpha1.Medium {
	out := v1alpha1.Medium{Device: path, State: v1alpha1.MediumUnreadable, Message: err.Error()}
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
