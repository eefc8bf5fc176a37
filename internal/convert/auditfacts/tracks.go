package auditfacts

import (
	"maps"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// classes are the report's words for the classes of a track's candidates.
var classes = map[string]string{v1alpha1.ClassSecurity: "rebuild", v1alpha1.ClassRebuild: "rebuild", v1alpha1.ClassImageFix: "fix", v1alpha1.ClassNewVersion: "version"}

// published returns the last registry answers of tracks, overridden by those of the caller.
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
				if u.Tag == tag.Tag && !tag.Deleted { // a mirror may be behind its upstream
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
		addLongTags(out, t)
	}
	maps.Copy(out, o.Published)
	return out
}

// goneDigests returns the deleted digests by repository@digest, from tracks and from the
// caller.
func (o *Objects) goneDigests() map[string]bool {
	out := map[string]bool{}
	for i := range o.Tracks {
		for _, d := range o.Tracks[i].Status.DeletedDigests {
			out[o.Tracks[i].Spec.Repository+"@"+d] = true
		}
	}
	maps.Copy(out, o.GoneDigests)
	return out
}

// addLongTags adds the long tags in a track's history: they never move, so an old answer is
// still true.
func addLongTags(out map[string]model.Published, t *v1alpha1.ImageTrack) {
	images := t.Status.History
	if t.Status.Approved != nil {
		images = append(images, *t.Status.Approved)
	}
	for _, i := range images {
		name := t.Spec.Repository + ":" + i.LongTag
		if _, known := out[name]; i.LongTag != "" && !known {
			out[name] = model.Published{Digest: i.Digest, Same: i.Same, Long: i.LongTag, Version: i.AppVersion, By: "track " + t.Name}
		}
	}
}
