package notifications

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/text"
)

// Events that messages are about.
const (
	eventStarted     = "Started"
	eventNeedsPerson = "NeedsPerson"
	eventFailed      = "Failed"
	eventDone        = "Done"
)

var events = []string{eventStarted, eventNeedsPerson, eventFailed, eventDone}

const (
	// settleTime is how long a reason must last before it is sent: many end by themselves.
	settleTime = 30 * time.Second
	// maxAge is how old a start or an end may be and still be sent.
	maxAge = 24 * time.Hour
	// forgetTime is how long the record of a reason that ended stays: a reason that comes again
	// within it is not sent again.
	forgetTime = 10 * time.Minute
	// maxRecords bounds status.notifications of one update, maxQueue the messages that wait for
	// one receiver.
	maxRecords, maxQueue = 50, 100
)

// notice is one message. Webhooks get it as JSON.
type notice struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// ID is the same in every repeat of the message.
	ID string `json:"id"`
	// Event is Started, NeedsPerson, Failed or Done.
	Event string `json:"event"`
	// At is since when it is so.
	At time.Time `json:"at"`
	// Cluster is the name in the file of receivers.
	Cluster string `json:"cluster,omitempty"`
	// Update is the name of the ClusterUpdate, Version that of its bundle, Phase its phase.
	Update  string `json:"update"`
	Version string `json:"version,omitempty"`
	Phase   string `json:"phase"`
	// Reason is a word of docs/reference/reasons.md.
	Reason string `json:"reason,omitempty"`
	// Message is what happened, where and by how much; Fix is what to do.
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// Object that it is about, as kind/name or kind/namespace/name.
	Object string `json:"object,omitempty"`
	// NodesDone of NodesTotal nodes of the plan are done.
	NodesDone  int32 `json:"nodesDone"`
	NodesTotal int32 `json:"nodesTotal"`
}

// currentNotices returns what is true of an update now. The IDs of a wait are those of its record,
// so that a wait for several objects stays one message when the first of them is ready.
func currentNotices(u *v1alpha1.ClusterUpdate) []notice {
	var out []notice
	add := func(event string, at time.Time, b v1alpha1.Blocker) {
		n := notice{APIVersion: "refit.dev/notification/v1", Kind: "Notification", Event: event, At: at.UTC(), Update: u.Name, Version: u.Status.Version, Phase: u.Status.Phase,
			Reason: b.Reason, Message: b.Message, Fix: b.Fix, Object: b.Object, NodesDone: u.Status.NodesDone, NodesTotal: u.Status.NodesTotal}
		n.ID = noticeID(u, &n)
		out = append(out, n)
	}
	if at := u.Status.StartedAt; at != nil {
		add(eventStarted, at.Time, v1alpha1.Blocker{Message: "The update of " + text.Count(int(u.Status.NodesTotal), "node") + " to " + u.Status.Version + " has started."})
	}
	switch u.Status.Phase {
	case v1alpha1.PhaseDone:
		if at := u.Status.FinishedAt; at != nil {
			add(eventDone, at.Time, doneText(u))
		}
	case v1alpha1.PhaseHalted:
		add(eventFailed, phaseStart(u), failure(u))
	default:
		for _, b := range personWaits(u.Status.Blockers) {
			add(eventNeedsPerson, b.Since.Time, b)
		}
	}
	return out
}

// noticeID is of the update, the event and its time. A recorded wait keeps its ID.
func noticeID(u *v1alpha1.ClusterUpdate, n *notice) string {
	if n.Event == eventNeedsPerson {
		for i := range u.Status.Notifications {
			if r := &u.Status.Notifications[i]; r.Event == n.Event && r.Reason == n.Reason {
				return r.ID
			}
		}
	}
	reason := n.Reason
	if n.Event != eventNeedsPerson {
		reason = "" // the first of several reasons may change
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d", u.UID, n.Event, reason, n.At.Unix()))
	return hex.EncodeToString(sum[:16])
}

// personWaits returns the reasons that need a person, one for each word.
func personWaits(all []v1alpha1.Blocker) []v1alpha1.Blocker {
	var out []v1alpha1.Blocker
	more := map[string]int{}
	for _, b := range all {
		if b.Waiting || b.Since == nil {
			continue
		}
		i := slices.IndexFunc(out, func(o v1alpha1.Blocker) bool { return o.Reason == b.Reason })
		if i < 0 {
			out = append(out, b)
			continue
		}
		more[b.Reason]++
		if b.Since.Before(out[i].Since) {
			out[i].Since = b.Since
		}
	}
	for i := range out {
		if n := more[out[i].Reason]; n > 0 {
			out[i].Message += fmt.Sprintf(" (and %d more for this reason)", n)
		}
	}
	return out
}

// failure is why an update halted.
func failure(u *v1alpha1.ClusterUpdate) v1alpha1.Blocker {
	b := v1alpha1.Blocker{Reason: v1alpha1.ReasonHalted, Message: "The update halted."}
	if len(u.Status.Blockers) > 0 {
		b = u.Status.Blockers[0]
	}
	if b.Fix == "" {
		b.Fix = "Remove the cause, then run refit retry " + u.Name + ", or refit rollback --end-current."
	}
	return b
}

func doneText(u *v1alpha1.ClusterUpdate) v1alpha1.Blocker {
	if c := meta.FindStatusCondition(u.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Message != "" {
		return v1alpha1.Blocker{Reason: c.Reason, Message: c.Message}
	}
	return v1alpha1.Blocker{Message: text.Count(int(u.Status.NodesDone), "node") + " observed at the target"}
}

// phaseStart is when the phase began, or the last time that is known before it.
func phaseStart(u *v1alpha1.ClusterUpdate) time.Time {
	for _, p := range slices.Backward(u.Status.Phases) {
		if p.Phase == u.Status.Phase {
			return p.StartedAt.Time
		}
	}
	if u.Status.StartedAt != nil {
		return u.Status.StartedAt.Time
	}
	return u.CreationTimestamp.Time
}

// history is what this process knows in addition to the status.
type history struct {
	// seen is since when a notice is current, gone since when a recorded one is not.
	seen, gone map[string]time.Time
	// delivered are the webhooks that got a notice and may not be in the record yet.
	delivered map[string][]string
}

func newHistory() *history {
	return &history{seen: map[string]time.Time{}, gone: map[string]time.Time{}, delivered: map[string][]string{}}
}

// observe takes in what is current, and what is recorded.
func (h *history) observe(current []notice, records []v1alpha1.NotificationRecord, now time.Time) {
	seen, gone, delivered := map[string]time.Time{}, map[string]time.Time{}, map[string][]string{}
	for i := range current {
		id := current[i].ID
		seen[id] = firstOf(h.seen, id, now)
		if d := h.delivered[id]; d != nil {
			delivered[id] = d
		}
	}
	for i := range records {
		if id := records[i].ID; seen[id].IsZero() {
			gone[id] = firstOf(h.gone, id, now)
		}
	}
	h.seen, h.gone, h.delivered = seen, gone, delivered
}

func firstOf(m map[string]time.Time, id string, now time.Time) time.Time {
	if at, ok := m[id]; ok && !at.After(now) { // else the clock was set
		return at
	}
	return now
}

// settled returns the current notices without waits that are new.
func (h *history) settled(current []notice, now time.Time) []notice {
	var out []notice
	for _, n := range current {
		if n.Event != eventNeedsPerson || now.Sub(h.seen[n.ID]) >= settleTime {
			out = append(out, n)
		}
	}
	return out
}

// dueNotices returns the settled notices that a webhook must still get, the oldest first.
func dueNotices(r *receiver, settled []notice, records []v1alpha1.NotificationRecord, h *history, now time.Time) []notice {
	var out []notice
	for _, n := range settled {
		old := now.Sub(n.At) > maxAge && (n.Event == eventStarted || n.Event == eventDone)
		if !old && r.wants(n.Event) && !slices.Contains(h.delivered[n.ID], r.name) && !isRecorded(records, n.ID, r.name) {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(out, func(a, b notice) int { return a.At.Compare(b.At) })
	return out
}

func isRecorded(records []v1alpha1.NotificationRecord, id, receiver string) bool {
	for i := range records {
		if records[i].ID == id {
			return slices.Contains(records[i].Receivers, receiver)
		}
	}
	return false
}

// nextRecords returns status.notifications with what was delivered since, and without waits and
// failures that ended some time ago.
func nextRecords(current []notice, records []v1alpha1.NotificationRecord, h *history, now time.Time) []v1alpha1.NotificationRecord {
	var out []v1alpha1.NotificationRecord
	for _, r := range records {
		if at, gone := h.gone[r.ID]; gone && now.Sub(at) >= forgetTime {
			continue
		}
		r.Receivers = mergeNames(r.Receivers, h.delivered[r.ID])
		out = append(out, r)
	}
	for _, n := range current {
		known := slices.ContainsFunc(out, func(r v1alpha1.NotificationRecord) bool { return r.ID == n.ID })
		if got := h.delivered[n.ID]; len(got) > 0 && !known {
			out = append(out, v1alpha1.NotificationRecord{Event: n.Event, Reason: reasonOf(&n), ID: n.ID, Receivers: mergeNames(nil, got)})
		}
	}
	return out[max(0, len(out)-maxRecords):]
}

// reasonOf is the word that a record of a wait is found by.
func reasonOf(n *notice) string {
	if n.Event == eventNeedsPerson {
		return n.Reason
	}
	return ""
}

// mergeNames returns sorted names without repeats.
func mergeNames(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.SortFunc(out, cmp.Compare[string])
	return slices.Compact(out)
}
