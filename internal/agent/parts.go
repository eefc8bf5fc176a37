package agent

import (
	"errors"
	"fmt"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/text"
)

// keepEdges copies the ends of the parts in this node, so that the media with the parts of a bundle
// may be plugged in one after the other.
func (l *bundleLoop) keepEdges(digest string) []model.Blocker {
	s, m := l.library.Shelf(digest), l.media.With(digest)
	if s == nil || m == nil {
		return nil
	}
	err := l.library.KeepEdges(s, m)
	if errors.Is(err, bundlestore.ErrStore) {
		return l.waiting(err)
	}
	if err != nil {
		l.log.Warn("failed to read the end of a part", "medium", m.Path, "error", err)
		l.media.Fail(m, err)
	}
	return nil
}

// dropEdges removes the ends of parts if one of them may be why a copy failed: the media bring them
// again.
func (l *bundleLoop) dropEdges(digest string, failure error) {
	if !bundlestore.IsWrongEdge(failure) {
		return
	}
	if err := l.library.DropEdges(digest); err != nil {
		l.log.Warn("failed to remove the ends of parts", "bundle", digest, "error", err)
	}
}

// withoutSource says which chunks of a bundle have no source; of a bundle in parts that no registry
// has, which parts have them.
func (l *bundleLoop) withoutSource(s *bundlestore.Shelf, chunks []int) model.Blocker {
	digest := s.Digest()
	missing := text.Count(len(chunks), "chunk") + " of bundle " + digest
	if numbers, count := l.media.MissingParts(s.Bundle(), chunks); len(numbers) > 0 && l.authority.Registry(digest, 0) == nil {
		parts := bundle.PartNumbers(numbers, count)
		return model.Blocker{Reason: v1alpha1.ReasonPartMissing, Waiting: true, Object: "Bundle/" + digest,
			Message: fmt.Sprintf("%s missing, with %s that this node needs: on no medium in this node, and no peer has sent them", parts, missing),
			Fix:     fmt.Sprintf("Plug the medium with %s into any node of the cluster.", parts)}
	}
	if v := l.baseMissing(digest, missing); v != nil { // the peers did not send them either
		return *v
	}
	return l.noSource(v1alpha1.ReasonNoSource, digest, missing+" missing: on no medium in this node, and no peer has sent them")
}
