package auditfacts

import (
	"maps"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// classes of a track's candidates as the report says them.
var classes = map[string]string{v1alpha1.ClassSecurity: "rebuild", v1alpha1.ClassRebuild: "rebuild", v1alpha1.ClassImageFix: "fix", v1alpha1.ClassNewVersion: "version"}

// published is what tracks last heard of their registries, and what somebody else
// was answered, which counts first.
func (o *Objects) published() map[string]model.Published {
	out := map[string]model.Published{}
	for i := range o.Tracks {
		t := &o.Tracks[i]
		for _, tag := range t.Status.Tags {
			p := model.Published{Digest: tag.Digest, Same: tag.Same, Long: tag.LongTag, Version: tag.AppVersion, Gone: tag.Deleted, By: "track " + t.Name}
			if tag.Deleted {
				p.Digest, p.Same = "", nil
			}
			for _, u := range t.Status.Upstream {
				if u.Tag == tag.Tag && !tag.Deleted { // what a mirror answered is not the newest
					p = model.Published{Digest: u.Digest, Mirror: tag.Digest, By: "track " + t.Name}
				}
			}
			for _, c := range t.Status.Candidates {
				if c.Digest == tag.Digest {
					p.Class, p.Security = classes[c.Class], c.Class == v1alpha1.ClassSecurity
				}
			}
			out[t.Spec.Repository+":"+tag.Tag] = p
		}
		long(out, t)
	}
	maps.Copy(out, o.Published)
	return out
}

// gone are the digests, as repository@digest, that registries do not have any more:
// what tracks and somebody else were answered.
func (o *Objects) gone() map[string]bool {
	out := map[string]bool{}
	for i := range o.Tracks {
		for _, d := range o.Tracks[i].Status.DeletedDigests {
			out[o.Tracks[i].Spec.Repository+"@"+d] = true
		}
	}
	maps.Copy(out, o.GoneDigests)
	return out
}

// long adds the long tags of images that a track remembers: they are never moved,
// so what was heard once is so.
func long(out map[string]model.Published, t *v1alpha1.ImageTrack) {
	known := t.Status.History
	if t.Status.Approved != nil {
		known = append(known, *t.Status.Approved)
	}
	for _, i := range known {
		name := t.Spec.Repository + ":" + i.LongTag
		if _, said := out[name]; i.LongTag != "" && !said {
			out[name] = model.Published{Digest: i.Digest, Same: i.Same, Long: i.LongTag, Version: i.AppVersion, By: "track " + t.Name}
		}
	}
}
