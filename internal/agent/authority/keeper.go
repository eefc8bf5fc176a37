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
	"github.com/refit-dev/refit/internal/model"
)

const (
	// Interval between two reads without a reason, with a third of it as jitter: of
	// 30,000 nodes some 34 small lists a second reach the API server.
	Interval = 30 * time.Minute
	// firstRetry doubles up to the interval while reading fails, or while something
	// that the controller named is not approved.
	firstRetry = 5 * time.Second
	// maxAge is how old a snapshot is when its age is reported.
	maxAge = 24 * time.Hour
	// unreachable is the longest pause after a read that failed.
	unreachable = 2 * time.Minute
	// afterStart spreads the first reads of nodes that start together and have a
	// snapshot.
	afterStart = time.Minute
)

// Keeper has the latest snapshot and reads it again. Safe for concurrent use.
type Keeper struct {
	reader  Reader
	path    string
	log     *slog.Logger
	changed func()
	ask     chan time.Duration

	mu   sync.Mutex
	snap *Snapshot
	// accepted are bundles that were allowed here once and that the node is still to
	// hold: what runs is kept when its approval is withdrawn, not when it is revoked.
	accepted []string
	// followed are configurations of runs that administrators stood behind, the newest
	// last.
	followed []string
	// unbacked: the controller named a bundle that nothing stands behind.
	unbacked bool
	// pending: a read was asked for and has not ended.
	pending bool
	err     error
}

// File has the snapshot, in the agent's state directory.
const File = "authority.json"

// Stored is the policy for a start without an API server: a bundle is in the node's
// store only because it was allowed when it came, so all but the revoked ones count. A
// snapshot that is missing or damaged takes nothing away.
func Stored(path string, store []string, toldTrust model.Trust, note statefile.Note) bundlestore.Policy {
	p := bundlestore.Policy{Approved: store}
	p.Trust.RevokedDigests = slices.Clone(toldTrust.RevokedDigests)
	if kept := readRecord(path, note); kept.Snapshot != nil {
		p.Trust.RevokedDigests = append(p.Trust.RevokedDigests, kept.Snapshot.Trust.RevokedDigests...)
	}
	return p
}

// record is what is on disk.
type record struct {
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Accepted []string  `json:"accepted,omitempty"`
	Followed []string  `json:"followed,omitempty"`
}

// Open reads what was kept. changed is called when a read brought something new, or
// the first answer that was waited for.
func Open(path string, r Reader, log *slog.Logger, note statefile.Note, changed func()) *Keeper {
	k := &Keeper{reader: r, path: path, log: log, changed: changed, ask: make(chan time.Duration, 1)}
	kept := readRecord(path, note)
	k.snap, k.accepted, k.followed = kept.Snapshot, kept.Accepted, kept.Followed
	return k
}

// Ask has the objects read soon: within spread, so that many nodes that are told the
// same do not ask at once.
func (k *Keeper) Ask(spread time.Duration) {
	k.mu.Lock()
	k.pending = true
	k.mu.Unlock()
	select {
	case k.ask <- spread:
	default: // a read is due already
	}
}

// Run reads until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	wait, retry := time.Duration(0), firstRetry
	if k.Known() {
		wait = jitter(afterStart)
	}
	for {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case spread := <-k.ask:
			retry = firstRetry
			sleep(ctx, jitter(spread))
		case <-t.C:
		}
		t.Stop()
		again, err := k.read(ctx)
		wait = Interval + jitter(Interval/3)
		if err != nil {
			retry = min(retry, unreachable)
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

// read reports whether to read again soon, and what kept it from reading.
func (k *Keeper) read(ctx context.Context) (again bool, err error) {
	s, err := ReadSnapshot(ctx, k.reader, time.Now())
	if ctx.Err() != nil {
		return true, err
	}
	k.mu.Lock()
	first := k.err == nil
	news := k.pending || err == nil && (k.snap == nil || !k.snap.same(s))
	k.pending, k.err = false, err
	if err == nil {
		k.snap = s
		k.save()
	}
	again = err != nil || k.unbacked
	k.mu.Unlock()
	if err != nil && first {
		k.log.Warn("failed to read what administrators approved; retrying", "error", err)
	}
	if news {
		k.changed()
	}
	return again, err
}

// Policy is what this node may load of what the controller told it. The controller
// may only take away: its revocations count in addition.
func (k *Keeper) Policy(told []string, toldTrust model.Trust, refit string) bundlestore.Policy {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := bundlestore.Policy{Refit: refit}
	if k.snap != nil {
		p.Trust = k.snap.Trust
		p.Approved = both(told, k.snap.Approved)
	}
	p.Accepted = k.accepted
	p.Trust.RevokedDigests = slices.Concat(p.Trust.RevokedDigests, toldTrust.RevokedDigests)
	return p
}

func both(a, b []string) (out []string) {
	for _, d := range a {
		if slices.Contains(b, d) {
			out = append(out, d)
		}
	}
	return out
}

// Accept notes that a bundle was allowed. held are all bundles that matter to the
// node: what is not among them any more is forgotten.
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
		k.save()
	}
}

// mostFollowed is how many configurations are remembered.
const mostFollowed = 8

// Follow notes the configurations of a run that administrators stand behind.
func (k *Keeper) Follow(names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := slices.DeleteFunc(slices.Clone(k.followed), func(n string) bool { return slices.Contains(names, n) })
	now = append(now, names...)
	now = now[max(0, len(now)-mostFollowed):]
	if !slices.Equal(now, k.followed) {
		k.followed = now
		k.save()
	}
}

// Follows reports whether a configuration was of such a run.
func (k *Keeper) Follows(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.followed, name)
}

// Unbacked notes whether the controller names a bundle that nothing stands behind.
func (k *Keeper) Unbacked(is bool) {
	k.mu.Lock()
	ask := is && !k.unbacked
	k.unbacked = is
	k.mu.Unlock()
	if ask {
		k.Ask(0)
	}
}

// Hopeless says why a bundle whose header is not here need not be fetched: nobody
// approved it, and no key is trusted that could have signed it. nil if it may be.
func (k *Keeper) Hopeless(digest string, p bundlestore.Policy) *model.Verdict {
	if slices.Contains(p.Approved, digest) || slices.Contains(p.Accepted, digest) || len(p.Trust.Policies) > 0 {
		return nil
	}
	v := k.Explain(model.Verdict{Reason: v1alpha1.ReasonBundleNotApproved, Object: "Bundle/" + digest}, digest)
	return &v
}

// Explain turns "nobody approved it", of a bundle that the controller named, into what
// that means on this node.
func (k *Keeper) Explain(v model.Verdict, digest string) model.Verdict {
	if v.Reason != v1alpha1.ReasonBundleNotApproved && v.Reason != v1alpha1.ReasonDigestMismatch {
		return v
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.snap == nil && k.err != nil:
		return model.Verdict{Reason: v1alpha1.ReasonApprovalUnreadable, Waiting: true, Object: v.Object,
			Message: fmt.Sprintf("bundle %s: this node cannot read from the API server what administrators approved: %v", digest, k.err),
			Fix:     "apply refit's rules for nodes (refit install), which let nodes read Bundles and TrustPolicies"}
	case k.snap == nil || k.pending:
		return model.Verdict{Reason: v1alpha1.ReasonApprovalUnreadable, Waiting: true, Object: v.Object,
			Message: "bundle " + digest + ": what administrators approved is being read from the API server"}
	}
	return model.Verdict{Reason: v1alpha1.ReasonApprovalNotFound, Object: v.Object,
		Message: fmt.Sprintf("the controller names bundle %s, but no Bundle object approves it and no TrustPolicy's keys signed it (read %s)", digest, k.snap.ReadAt.Format(time.RFC3339)),
		Fix:     "approve it with refit approve, or sign it with a trusted key; if no administrator asked for it, the controller's token may be stolen: revoke the token"}
}

// Stale says that the snapshot is old, in words; "" if it is not. A clock that runs
// behind says nothing.
func (k *Keeper) Stale(now time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.snap == nil || now.Sub(k.snap.ReadAt) < maxAge {
		return ""
	}
	return fmt.Sprintf("approvals and revocations were last read %s", k.snap.ReadAt.Format(time.RFC3339))
}

// save is called with the mutex held.
func (k *Keeper) save() {
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
