package authority

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/model"
)

const (
	// Interval is the time between two reads without a reason, plus up to a third as
	// jitter: 30,000 nodes send the API server some 34 small list requests a second.
	Interval = 30 * time.Minute
	// firstRetry doubles up to the interval while reading fails, or while something that
	// the controller named is not approved.
	firstRetry = 5 * time.Second
	// maxAge is the age from which a snapshot's age is reported.
	maxAge = 24 * time.Hour
	// maxRetry is the longest pause after a failed read.
	maxRetry = 2 * time.Minute
	// startSpread spreads the first reads of nodes that start at the same time and have a
	// snapshot.
	startSpread = time.Minute
)

// Keeper keeps the latest snapshot and refreshes it. Safe for concurrent use.
type Keeper struct {
	reader   Reader
	path     string
	log      *slog.Logger
	changed  func()
	requests chan time.Duration

	mu   sync.Mutex
	snap *Snapshot
	// accepted are bundles that were allowed here once and that the node must still
	// keep: a withdrawn approval does not remove what runs, only a revocation does.
	accepted []string
	// followed are configurations of runs that administrators approved, the newest last.
	followed []string
	// unapproved: the controller named a bundle that no administrator approved.
	unapproved bool
	// pending: a read was requested and has not ended.
	pending bool
	err     error
}

// File is the name of the record in the agent's state directory.
const File = "authority.json"

// Stored is the policy for a start without an API server. A bundle is in the node's store
// only because it was allowed when it came, so all but the revoked ones count. A missing or
// damaged snapshot takes nothing away.
func Stored(path string, store []string, controllerTrust model.Trust, note statefile.Note) bundlestore.Policy {
	p := bundlestore.Policy{Approved: store}
	p.Trust.RevokedDigests = slices.Clone(controllerTrust.RevokedDigests)
	if kept := readRecord(path, note); kept.Snapshot != nil {
		p.Trust.RevokedDigests = append(p.Trust.RevokedDigests, kept.Snapshot.Trust.RevokedDigests...)
	}
	return p
}

// record is the content of the file.
type record struct {
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Accepted []string  `json:"accepted,omitempty"`
	Followed []string  `json:"followed,omitempty"`
}

// Open reads the record. changed is called when a read brought something new, or the first
// answer that was waited for.
func Open(path string, r Reader, log *slog.Logger, note statefile.Note, changed func()) *Keeper {
	k := &Keeper{reader: r, path: path, log: log, changed: changed, requests: make(chan time.Duration, 1)}
	kept := readRecord(path, note)
	k.snap, k.accepted, k.followed = kept.Snapshot, kept.Accepted, kept.Followed
	return k
}

// RequestRead makes Run read the objects soon: within spread, so that many nodes that get the
// same desired state do not ask at once.
func (k *Keeper) RequestRead(spread time.Duration) {
	k.mu.Lock()
	k.pending = true
	k.mu.Unlock()
	select {
	case k.requests <- spread:
	default: // a read is due already
	}
}

// Run reads until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	wait, retry := time.Duration(0), firstRetry
	if k.Known() {
		wait = jitter(startSpread)
	}
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case spread := <-k.requests:
			retry = firstRetry
			sleep(ctx, jitter(spread))
		case <-t.C:
		}
		t.Stop()
		again, err := k.refresh(ctx)
		wait = Interval + jitter(Interval/3)
		if err != nil {
			retry = min(retry, maxRetry)
		}
		if again && retry < Interval {
			wait = retry/2 + jitter(retry)
			retry *= 2
		}
	}
}

// Known reports whether there is a snapshot.
func (k *Keeper) Known() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.snap != nil
}

// refresh reads a snapshot. again asks for another read soon.
func (k *Keeper) refresh(ctx context.Context) (again bool, err error) {
	s, err := ReadSnapshot(ctx, k.reader, time.Now())
	if ctx.Err() != nil {
		return true, err
	}
	k.mu.Lock()
	first := k.err == nil
	news := k.pending || err == nil && (k.snap == nil || !k.snap.sameContent(s))
	k.pending, k.err = false, err
	if err == nil {
		k.snap = s
		k.saveRecord()
	}
	again = err != nil || k.unapproved
	k.mu.Unlock()
	if err != nil && first {
		k.log.Warn("failed to read what administrators approved; retrying", "error", err)
	}
	if news {
		k.changed()
	}
	return again, err
}

// Policy is what this node may load of the bundles that the controller named. The controller
// may only take away: its revocations count in addition.
func (k *Keeper) Policy(named []string, controllerTrust model.Trust, refit string) bundlestore.Policy {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := bundlestore.Policy{Refit: refit}
	if k.snap != nil {
		p.Trust = k.snap.Trust
		p.Approved = intersect(named, k.snap.Approved)
	}
	p.Accepted = k.accepted
	p.Trust.RevokedDigests = slices.Concat(p.Trust.RevokedDigests, controllerTrust.RevokedDigests)
	return p
}

// ImageRules are the rules about signatures of images, as last read.
func (k *Keeper) ImageRules() []imageproof.NamedRules {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.snap == nil {
		return nil // no bundle is approved either
	}
	return k.snap.Images
}

// StoredImageRules are those of the record, for a start without an API server.
func StoredImageRules(path string, note statefile.Note) []imageproof.NamedRules {
	if kept := readRecord(path, note); kept.Snapshot != nil {
		return kept.Snapshot.Images
	}
	return nil
}

// Registry is where administrators say that an approved bundle is, in an object of at least
// that generation; nil if no such object was read.
func (k *Keeper) Registry(digest string, generation int64) *v1alpha1.BundleRegistry {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.snap == nil {
		return nil
	}
	at, ok := k.snap.Registries[digest]
	if !ok || at.Generation < generation {
		return nil
	}
	return &at.BundleRegistry
}

func intersect(a, b []string) (out []string) {
	for _, d := range a {
		if slices.Contains(b, d) {
			out = append(out, d)
		}
	}
	return out
}

// Accept records that bundles were allowed. held are all bundles that matter to the node:
// others are dropped from the record.
func (k *Keeper) Accept(allowed, held []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var now []string
	for _, d := range held {
		if slices.Contains(allowed, d) || slices.Contains(k.accepted, d) {
			now = append(now, d)
		}
	}
	slices.Sort(now)
	if now = slices.Compact(now); !slices.Equal(now, k.accepted) {
		k.accepted = now
		k.saveRecord()
	}
}

// maxFollowed is how many configurations are recorded.
const maxFollowed = 8

// Follow records the configurations of a run that administrators approved.
func (k *Keeper) Follow(names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := slices.DeleteFunc(slices.Clone(k.followed), func(n string) bool { return slices.Contains(names, n) })
	now = append(now, names...)
	now = now[max(0, len(now)-maxFollowed):]
	if !slices.Equal(now, k.followed) {
		k.followed = now
		k.saveRecord()
	}
}

// Follows reports whether a configuration is one of those.
func (k *Keeper) Follows(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.followed, name)
}

// SetUnapproved sets whether the controller names a bundle that no administrator approved.
func (k *Keeper) SetUnapproved(is bool) {
	k.mu.Lock()
	ask := is && !k.unapproved
	k.unapproved = is
	k.mu.Unlock()
	if ask {
		k.RequestRead(0)
	}
}

// RefuseFetch says why a bundle whose header is not here must not be fetched: no
// administrator approved it, and no trusted key could have signed it. nil if it may be.
func (k *Keeper) RefuseFetch(digest string, p bundlestore.Policy) *model.Blocker {
	if slices.Contains(p.Approved, digest) || slices.Contains(p.Accepted, digest) || len(p.Trust.Policies) > 0 {
		return nil
	}
	v := k.Explain(model.Blocker{Reason: v1alpha1.ReasonBundleNotApproved, Object: "Bundle/" + digest}, digest)
	return &v
}

// Explain turns the verdict "not approved", for a bundle that the controller named, into its
// cause on this node.
func (k *Keeper) Explain(v model.Blocker, digest string) model.Blocker {
	if v.Reason != v1alpha1.ReasonBundleNotApproved && v.Reason != v1alpha1.ReasonDigestMismatch {
		return v
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.snap == nil && k.err != nil:
		return model.Blocker{Reason: v1alpha1.ReasonApprovalUnreadable, Waiting: true, Object: v.Object,
			Message: fmt.Sprintf("bundle %s: this node cannot read from the API server what administrators approved: %v", digest, k.err),
			Fix:     "apply refit's rules for nodes (refit install), which let nodes read Bundles and TrustPolicies"}
	case k.snap == nil || k.pending:
		return model.Blocker{Reason: v1alpha1.ReasonApprovalUnreadable, Waiting: true, Object: v.Object,
			Message: "bundle " + digest + ": what administrators approved is being read from the API server"}
	}
	return model.Blocker{Reason: v1alpha1.ReasonApprovalNotFound, Object: v.Object,
		Message: fmt.Sprintf("the controller names bundle %s, but no Bundle object approves it and no TrustPolicy's keys signed it (read %s)", digest, k.snap.ReadAt.Format(time.RFC3339)),
		Fix:     "approve it with refit approve, or sign it with a trusted key; if no administrator asked for it, the controller's token may be stolen: revoke the token"}
}

// Stale reports an old snapshot, in words; "" if it is not old. A clock that is behind hides
// it.
func (k *Keeper) Stale(now time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.snap == nil || now.Sub(k.snap.ReadAt) < maxAge {
		return ""
	}
	return fmt.Sprintf("approvals and revocations were last read %s", k.snap.ReadAt.Format(time.RFC3339))
}

// saveRecord is called with the mutex held.
func (k *Keeper) saveRecord() {
	b, err := json.Marshal(record{k.snap, k.accepted, k.followed})
	if err == nil {
		err = fsutil.WriteFile(k.path, b, 0o600)
	}
	if err != nil {
		k.log.Error("failed to keep approvals for the next start", "error", err)
	}
}

func jitter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
