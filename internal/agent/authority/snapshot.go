package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/model"
)

// Reader reads the objects that administrators write.
type Reader interface {
	Bundles(ctx context.Context) ([]v1alpha1.Bundle, error)
	TrustPolicies(ctx context.Context) ([]v1alpha1.TrustPolicy, error)
}

// Snapshot is what administrators decided about bundles and images. It is immutable.
type Snapshot struct {
	// ReadAt is when it was read from the API server.
	ReadAt time.Time `json:"readAt"`
	// Approved digests of Bundle objects, sorted.
	Approved []string `json:"approved,omitempty"`
	// Registries are where bundles are, by their digests.
	Registries map[string]Registry `json:"registries,omitempty"`
	// Trust has the keys and revoked digests of all TrustPolicies.
	Trust model.Trust `json:"trust"`
	// Images are the rules of TrustPolicies about signatures of images.
	Images []imageproof.NamedRules `json:"images,omitempty"`
}

// Registry is where an administrator says that a bundle is.
type Registry struct {
	v1alpha1.BundleRegistry
	// Generation of the object that says so.
	Generation int64 `json:"generation"`
}

// ReadSnapshot reads both kinds.
func ReadSnapshot(ctx context.Context, r Reader, now time.Time) (*Snapshot, error) {
	bundles, err := r.Bundles(ctx)
	if err != nil {
		return nil, fmt.Errorf("read approvals: %w", err)
	}
	policies, err := r.TrustPolicies(ctx)
	if err != nil {
		return nil, fmt.Errorf("read trusted keys: %w", err)
	}
	s := &Snapshot{ReadAt: now.UTC().Truncate(time.Second), Trust: convert.TrustList(policies), Images: convert.ImageRules(policies)}
	for i := range bundles {
		if d := bundles[i].Spec.Digest; d != "" && bundles[i].DeletionTimestamp.IsZero() {
			s.Approved = append(s.Approved, d)
			s.addRegistry(&bundles[i])
		}
	}
	slices.Sort(s.Approved)
	s.Approved = slices.Compact(s.Approved)
	return s, nil
}

// addRegistry adds where a bundle is. Of several objects for one bundle the newest change
// counts.
func (s *Snapshot) addRegistry(b *v1alpha1.Bundle) {
	if b.Spec.Registry == nil || s.Registries[b.Spec.Digest].Generation >= b.Generation {
		return
	}
	if s.Registries == nil {
		s.Registries = map[string]Registry{}
	}
	s.Registries[b.Spec.Digest] = Registry{*b.Spec.Registry, b.Generation}
}

// sameContent reports whether both have the same content, independent of the time.
func (s *Snapshot) sameContent(o *Snapshot) bool {
	a, b := *s, *o
	a.ReadAt, b.ReadAt = time.Time{}, time.Time{}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

var errEmptyRecord = errors.New("it has neither approvals nor bundles")

// readRecord reads the record of an earlier start; empty if there is none, or if the file is
// damaged.
func readRecord(path string, note statefile.Note) (r record) {
	if !statefile.Read(path, "approvals are read from the API server again", func(b []byte) error {
		if err := json.Unmarshal(b, &r); err != nil {
			return err
		}
		if reflect.DeepEqual(r, record{}) {
			return errEmptyRecord
		}
		return nil
	}, note) {
		return record{}
	}
	return r
}
