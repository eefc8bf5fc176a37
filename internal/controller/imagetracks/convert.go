package imagetracks

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/track"
)

// tiers of the API as package imagetag has them.
var tiers = map[string]imagetag.Tier{v1alpha1.TierShort: imagetag.Short, v1alpha1.TierIntermediate: imagetag.Intermediate, v1alpha1.TierLong: imagetag.Long}

// trackOf reads a spec; an error is for the person who wrote it.
func trackOf(spec *v1alpha1.ImageTrackSpec) (track.Track, error) {
	t := track.Track{Mirrors: spec.Mirrors, Tag: spec.Follow.Tag, Tier: tiers[spec.Follow.Tier], Versions: spec.Follow.Versions, SkipVersions: spec.Follow.SkipVersions,
		MinAge: time.Duration(spec.MinAgeSeconds) * time.Second, Freeze: spec.Freeze, Auto: map[track.Class]bool{}, Refused: map[string]string{}}
	ref, err := imagetag.ParseRef(spec.Repository)
	if err != nil {
		return t, fmt.Errorf("spec.repository: %w", err)
	}
	t.Repository = ref.Repository
	if _, bad := rolloutfacts.Windows(spec.Windows); bad != "" {
		return t, fmt.Errorf("spec.windows: %s", bad)
	}
	if t.Scheme, err = imagetag.ByName(spec.Scheme); err != nil {
		return t, fmt.Errorf("spec.scheme: %w", err)
	}
	if err := track.CheckVersions(spec.Follow.Versions); err != nil {
		return t, fmt.Errorf("spec.follow.versions %q: %w; write for example ~2.6 or >=2.6, <3", spec.Follow.Versions, err)
	}
	for _, c := range spec.Automatic {
		t.Auto[track.Class(c)] = true
	}
	for _, a := range spec.Approvals {
		t.Approvals = append(t.Approvals, track.Approval{Digest: a.Digest, Serial: a.Serial, AnyOrder: a.AnyOrder, By: a.ApprovedBy, Reason: a.Reason})
	}
	for _, r := range spec.Refused {
		t.Refused[r.Digest] = r.Reason
	}
	return t, nil
}

func imageOf(i *v1alpha1.TrackedImage) track.Image {
	return track.Image{Digest: i.Digest, Tag: i.Tag, Long: i.LongTag, App: i.AppVersion, Same: i.Same, Security: i.Security, Severity: i.Severity, Fixes: i.Fixes, ManifestsChange: i.ManifestsChange, Size: i.SizeBytes, At: timeOf(i.ObservedAt)}
}

func toImage(i *track.Image) v1alpha1.TrackedImage {
	return v1alpha1.TrackedImage{Digest: i.Digest, Tag: i.Tag, LongTag: i.Long, AppVersion: i.App, Same: i.Same, Security: i.Security, Severity: i.Severity, Fixes: i.Fixes, ManifestsChange: i.ManifestsChange, SizeBytes: i.Size, ObservedAt: toTime(i.At)}
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// toTime keeps seconds, as the API does: what is read back is what was written.
func toTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	m := metav1.NewTime(t.Truncate(time.Second))
	return &m
}

// stateOf is what a status remembers.
func stateOf(st *v1alpha1.ImageTrackStatus) track.State {
	s := track.State{Serial: st.Serial, Minors: st.MinorVersions}
	for i := range st.Tags {
		s.Pointers = append(s.Pointers, track.Pointer{Image: imageOf(&st.Tags[i].TrackedImage), Serial: st.Tags[i].Serial, Gone: st.Tags[i].Deleted})
	}
	if st.Approved != nil {
		a := imageOf(st.Approved)
		s.Approved = &a
	}
	for i := range st.History {
		s.History = append(s.History, imageOf(&st.History[i]))
	}
	for _, r := range st.RolledBack {
		s.RolledBack = append(s.RolledBack, track.RolledBack{Digest: r.Digest, To: r.To, By: r.Actor, Serial: r.Serial, At: timeOf(r.ObservedAt)})
	}
	return s
}

// remember writes a state into a status.
func remember(s *track.State, candidates []track.Candidate, st *v1alpha1.ImageTrackStatus) {
	st.Serial, st.Tags, st.Candidates, st.Approved, st.History, st.RolledBack = s.Serial, nil, nil, nil, nil, nil
	st.MinorVersions = s.Minors
	for i := range s.Pointers {
		p := &s.Pointers[i]
		st.Tags = append(st.Tags, v1alpha1.TrackedTag{TrackedImage: toImage(&p.Image), Serial: p.Serial, Deleted: p.Gone})
	}
	for i := range candidates {
		c := &candidates[i]
		st.Candidates = append(st.Candidates, v1alpha1.TrackCandidate{Digest: c.Digest, Tag: c.Tag, LongTag: c.Long, Class: string(c.Class),
			Decision: string(c.Decision), Why: c.Why, Skips: c.Skips, Severity: c.Severity, Fixes: c.Fixes, Serial: c.Serial, Since: toTime(c.At)})
	}
	if s.Approved != nil {
		a := toImage(s.Approved)
		st.Approved = &a
	}
	for i := range s.History {
		st.History = append(st.History, toImage(&s.History[i]))
	}
	for _, r := range s.RolledBack {
		st.RolledBack = append(st.RolledBack, v1alpha1.RolledBack{Digest: r.Digest, To: r.To, Actor: r.By, Serial: r.Serial, ObservedAt: toTime(r.At)})
	}
}
