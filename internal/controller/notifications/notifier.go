package notifications

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/outbound"
)

// FieldOwner is the server-side apply owner of status.notifications.
const FieldOwner = v1alpha1.FieldOwnerController + "-notifications"

const (
	// checkInterval is how often files and updates are read without an event.
	checkInterval = 10 * time.Second
	// collectTime is how long events are collected.
	collectTime = 500 * time.Millisecond
)

// Options of the notifications.
type Options struct {
	// File has the receivers; empty for none. It may be written later, and change.
	File string
	// Servers restricts the connections.
	Servers  *outbound.Guard
	Registry prometheus.Registerer
	Now      func() time.Time
}

// Notifier sends messages while this process leads.
type Notifier struct {
	options Options
	client  client.Client
	log     logr.Logger
	metric  *prometheus.CounterVec
	wake    chan struct{}
	// collect and pause are shorter in tests.
	collect time.Duration
	pause   func(failures int) time.Duration

	// Of the loop alone.
	settings settings
	fault    string
	senders  []sender
	stop     func()

	mu        sync.Mutex
	histories map[types.UID]*history
}

// sender is a webhook or an Alertmanager.
type sender struct {
	receiver *receiver
	webhook  *webhook
	alerts   *alertmanager
}

// Setup adds the notifications to a manager.
func Setup(mgr ctrl.Manager, o Options) error {
	n, err := newNotifier(mgr.GetClient(), mgr.GetLogger().WithName("notifications"), o)
	if err != nil || o.File == "" {
		return err
	}
	informer, err := mgr.GetCache().GetInformer(context.Background(), &v1alpha1.ClusterUpdate{})
	if err != nil {
		return fmt.Errorf("watch ClusterUpdates for notifications: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { n.notify() }, UpdateFunc: func(any, any) { n.notify() }, DeleteFunc: func(any) { n.notify() }})
	if err != nil {
		return fmt.Errorf("watch ClusterUpdates for notifications: %w", err)
	}
	return mgr.Add(n)
}

func newNotifier(c client.Client, log logr.Logger, o Options) (*Notifier, error) {
	n := &Notifier{options: o, client: c, log: log, metric: newMetric(), wake: make(chan struct{}, 1), collect: collectTime, pause: pause,
		stop: func() {}, histories: map[types.UID]*history{}}
	if err := o.Registry.Register(n.metric); err != nil {
		return nil, fmt.Errorf("register the metric of notifications: %w", err)
	}
	return n, nil
}

// NeedLeaderElection is true: two replicas would send each message twice.
func (n *Notifier) NeedLeaderElection() bool { return true }

func (n *Notifier) notify() {
	select {
	case n.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Start sends messages until the context ends.
func (n *Notifier) Start(ctx context.Context) error {
	defer func() { n.stop() }()
	for ctx.Err() == nil {
		n.reload(ctx)
		if len(n.senders) > 0 {
			if err := n.step(ctx); err != nil && ctx.Err() == nil {
				n.log.Error(err, "failed to process notifications")
			}
		}
		sleep(ctx, checkInterval, n.wake)
		sleep(ctx, n.collect, nil)
	}
	return nil
}

// reload reads the files, and replaces the senders if they changed. Files that are not valid
// change nothing.
func (n *Notifier) reload(ctx context.Context) {
	s, err := loadSettings(n.options.File)
	if err != nil {
		if n.fault != err.Error() {
			n.fault = err.Error()
			n.log.Info("receivers of notifications are not valid, the last valid ones stay", "error", n.fault)
		}
		return
	}
	n.fault = ""
	if s.sum == n.settings.sum {
		return
	}
	n.stop()
	n.senders, n.settings = nil, s
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	n.stop = func() { cancel(); wg.Wait() }
	for i := range s.receivers {
		r := &s.receivers[i]
		p := newPoster(r, n.options.Servers, n.log, n.metric)
		p.pause = n.pause
		out := sender{receiver: r}
		if r.kind == typeAlertmanager {
			out.alerts = newAlertmanager(p, n.options.Now)
			wg.Go(func() { out.alerts.run(ctx) })
		} else {
			out.webhook = newWebhook(p, n.options.Now, func(d notice) { n.remember(r.name, d) })
			wg.Go(func() { out.webhook.run(ctx) })
		}
		n.senders = append(n.senders, out)
	}
	n.log.Info("receivers of notifications read", "receivers", len(s.receivers))
}

// remember notes a delivery until it is in the status.
func (n *Notifier) remember(receiver string, d notice) {
	n.mu.Lock()
	for _, h := range n.histories {
		if _, ok := h.seen[d.ID]; ok {
			h.delivered[d.ID] = append(h.delivered[d.ID], receiver)
		}
	}
	n.mu.Unlock()
	n.notify()
}

// step gives the senders what is due, and records what arrived.
func (n *Notifier) step(ctx context.Context) error {
	var list v1alpha1.ClusterUpdateList
	if err := n.client.List(ctx, &list); err != nil {
		return fmt.Errorf("list ClusterUpdates: %w", err)
	}
	due, all, changed := n.decide(list.Items)
	for _, s := range n.senders {
		if s.webhook != nil {
			s.webhook.set(due[s.receiver.name])
		} else {
			s.alerts.set(all)
		}
	}
	var failed error
	for u, records := range changed {
		if err := n.record(ctx, u, records); err != nil {
			failed = err
		}
	}
	return failed
}

// decide returns what each webhook must get, all that is true now, and the records that change.
func (n *Notifier) decide(updates []v1alpha1.ClusterUpdate) (due map[string][]notice, all []notice, changed map[*v1alpha1.ClusterUpdate][]v1alpha1.NotificationRecord) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.options.Now()
	due, changed = map[string][]notice{}, map[*v1alpha1.ClusterUpdate][]v1alpha1.NotificationRecord{}
	histories := map[types.UID]*history{}
	for i := range updates {
		u := &updates[i]
		if !u.DeletionTimestamp.IsZero() {
			continue
		}
		h := n.histories[u.UID]
		if h == nil {
			h = newHistory()
		}
		histories[u.UID] = h
		records, current := u.Status.Notifications, currentNotices(u)
		for i := range current {
			current[i].Cluster = n.settings.cluster
		}
		h.observe(current, records, now)
		settled := h.settled(current, now)
		all = append(all, settled...)
		for _, s := range n.senders {
			if s.webhook != nil {
				due[s.receiver.name] = append(due[s.receiver.name], dueNotices(s.receiver, settled, records, h, now)...)
			}
		}
		if next := nextRecords(current, records, h, now); !slices.EqualFunc(next, records, sameRecord) {
			changed[u] = next
		}
	}
	n.histories = histories
	return due, all, changed
}

func sameRecord(a, b v1alpha1.NotificationRecord) bool { return reflect.DeepEqual(a, b) }

// record writes status.notifications, which this package alone owns.
func (n *Notifier) record(ctx context.Context, u *v1alpha1.ClusterUpdate, records []v1alpha1.NotificationRecord) error {
	status := map[string]any{}
	var list []any
	for _, r := range records {
		names := make([]any, 0, len(r.Receivers))
		for _, name := range r.Receivers {
			names = append(names, name)
		}
		one := map[string]any{"event": r.Event, "id": r.ID, "receivers": names}
		if r.Reason != "" {
			one["reason"] = r.Reason
		}
		list = append(list, one)
	}
	if len(list) > 0 {
		status["notifications"] = list
	}
	o := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	o.SetAPIVersion(v1alpha1.GroupVersion.String())
	o.SetKind("ClusterUpdate")
	o.SetName(u.Name)
	o.SetUID(u.UID)
	err := n.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(FieldOwner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("record notifications in the status of ClusterUpdate %s: %w", u.Name, err)
	}
	return nil
}
