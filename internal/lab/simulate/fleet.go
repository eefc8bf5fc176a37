package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/model"
)

// writers is how many nodes write at once.
const writers = 24

// fleet is all nodes. They share the watches, and the connection: each write
// says whose it is.
type fleet struct {
	nodes  []*node
	byName map[string]*node
	chunks *chunkServer
	queue  workqueue.TypedDelayingInterface[*node]
	api    client.Client // as administrator
	refit  *rest.RESTClient
	core   *rest.RESTClient
	seen   *seen
	// fail reports the first refused write.
	fail func(error)

	mu    sync.Mutex
	holds map[string][2]int32
	// mediumInserted is true once the first node has the stick.
	mediumInserted bool
}

func newFleet(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme, o Options, chunks *chunkServer, fail func(error)) (*fleet, error) {
	f := &fleet{nodes: drawn(o), byName: map[string]*node{}, chunks: chunks, holds: map[string][2]int32{}, seen: newSeen(), fail: fail,
		queue: workqueue.NewTypedDelayingQueue[*node]()}
	for _, n := range f.nodes {
		f.byName[n.name] = n
	}
	var err error
	if f.api, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if f.refit, err = restClient(cfg, scheme, v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "/apis"); err != nil {
		return nil, err
	}
	if f.core, err = restClient(cfg, scheme, "", "v1", "/api"); err != nil {
		return nil, err
	}
	return f, f.watch(ctx, cfg, scheme)
}

func restClient(cfg *rest.Config, scheme *runtime.Scheme, group, version, path string) (*rest.RESTClient, error) {
	c := rest.CopyConfig(cfg)
	c.GroupVersion = &schema.GroupVersion{Group: group, Version: version}
	c.APIPath = path
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(c)
}

// create registers the nodes, as their kubelets would.
func (f *fleet) create(ctx context.Context) error {
	return each(writers, f.nodes, func(n *node) error {
		if err := f.api.Create(ctx, n.kubeNode()); err != nil {
			return fmt.Errorf("register %s: %w", n.name, err)
		}
		return nil
	})
}

// watch follows all NodeUpdates and Nodes.
func (f *fleet) watch(ctx context.Context, cfg *rest.Config, scheme *runtime.Scheme) error {
	c, err := cache.New(cfg, cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return err
	}
	for _, w := range []struct {
		of  client.Object
		got func(o any)
	}{{&v1alpha1.NodeUpdate{}, f.gotUpdate}, {&corev1.Node{}, func(o any) {
		if n, ok := o.(*corev1.Node); ok {
			f.seen.node(n, time.Now())
		}
	}}} {
		inf, err := c.GetInformer(ctx, w.of)
		if err != nil {
			return err
		}
		if _, err := inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: w.got, UpdateFunc: func(_, o any) { w.got(o) }}); err != nil {
			return err
		}
	}
	go func() { _ = c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		return fmt.Errorf("watch the nodes: %w", ctx.Err())
	}
	return nil
}

func (f *fleet) gotUpdate(o any) {
	nu, ok := o.(*v1alpha1.NodeUpdate)
	if !ok || f.byName[nu.Name] == nil {
		return
	}
	now := time.Now()
	f.seen.update(nu, now)
	f.byName[nu.Name].seen(nu, now)
	f.queue.Add(f.byName[nu.Name])
}

// run lets the nodes live until the context ends.
func (f *fleet) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for {
				n, down := f.queue.Get()
				if down {
					return
				}
				again, err := f.live(ctx, n)
				f.queue.Done(n)
				if err != nil && ctx.Err() == nil {
					f.fail(err)
					again = time.Second
				}
				if again > 0 {
					f.queue.AddAfter(n, again)
				}
			}
		})
	}
	<-ctx.Done()
	f.queue.ShutDown()
	wg.Wait()
}

// live brings a node to this moment and writes what it has to say; again is when
// it has something to say next, 0 if not by itself.
func (f *fleet) live(ctx context.Context, n *node) (again time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.want == nil {
		return 0, nil
	}
	now := time.Now()
	next := n.advance(now)
	if n.kubelet != n.reportedKubelet || n.ready != n.reportedReady {
		if err := f.writeNode(ctx, n); err != nil {
			return 0, err
		}
		n.reportedKubelet, n.reportedReady = n.kubelet, n.ready
	}
	wait, err := f.writeStatus(ctx, n, now)
	switch {
	case err != nil:
		return 0, err
	case next.IsZero():
		return wait, nil
	}
	again = max(time.Millisecond, time.Until(next))
	if wait > 0 {
		again = min(again, wait)
	}
	return again, nil
}

// writeStatus applies the status as the node's agent does, and when it would; wait
// is how long something new is kept back, 0 if nothing is. There are no heartbeats.
func (f *fleet) writeStatus(ctx context.Context, n *node, now time.Time) (wait time.Duration, err error) {
	st := n.status(now, f.chunks, f.deviceOf(n), func(name string) (int32, int32) { return f.hold(ctx, name) })
	if st.Pins != nil && st.Pins.ImagesTotal == 0 {
		return 0, fmt.Errorf("the hold list of %s is not readable yet", n.name)
	}
	if reflect.DeepEqual(st, n.sent) {
		return 0, nil
	}
	if wait := statusreport.IntervalsFor(n.want.Spec).Wait(st, n.sent, now.Sub(n.sentAt)); wait > 0 {
		return wait, nil
	}
	body := *st
	agent, beat := *st.Agent, metav1.NewTime(now.Truncate(time.Second))
	agent.Heartbeat, body.Agent = &beat, &agent
	text, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeUpdate",
		"metadata": map[string]any{"name": n.name, "namespace": v1alpha1.NodesNamespace}, "status": &body})
	if err != nil {
		return 0, err
	}
	err = as(f.refit.Patch(types.ApplyPatchType), n).Namespace(v1alpha1.NodesNamespace).Resource("nodeupdates").Name(n.name).SubResource("status").
		Param("fieldManager", v1alpha1.FieldOwnerAgent).Param("force", "true").Body(text).Do(ctx).Error()
	if err != nil {
		return 0, fmt.Errorf("the agent of %s: %w", n.name, err)
	}
	n.sent, n.sentAt = st, now
	return 0, nil
}

// writeNode patches the status as a kubelet does.
func (f *fleet) writeNode(ctx context.Context, n *node) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"kubeletVersion": n.kubelet}, "conditions": n.kubeConditions()}})
	if err != nil {
		return err
	}
	err = as(f.core.Patch(types.StrategicMergePatchType), n).Resource("nodes").Name(n.name).SubResource("status").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("the kubelet of %s: %w", n.name, err)
	}
	return nil
}

// as makes a request that of a node: the API server asks its authorizers and
// policies about the node, not about who sends it.
func as(r *rest.Request, n *node) *rest.Request {
	return r.SetHeader("Impersonate-User", "system:node:"+n.name).SetHeader("Impersonate-Group", "system:nodes")
}

// hold counts a hold list; every node would read it, here the first does.
func (f *fleet) hold(ctx context.Context, name string) (images, payloads int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h, ok := f.holds[name]; ok {
		return h[0], h[1]
	}
	var c v1alpha1.Content
	var l model.PinSet
	if f.api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c) != nil || json.Unmarshal([]byte(c.Data), &l) != nil {
		return 0, 0
	}
	f.holds[name] = [2]int32{int32(len(l.Images)), int32(len(l.Payloads))}
	return int32(len(l.Images)), int32(len(l.Payloads))
}

func (f *fleet) deviceOf(n *node) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mediumInserted && n == f.nodes[0] {
		return "/dev/sdb"
	}
	return ""
}

// plugIn puts the stick into the first node.
func (f *fleet) plugIn() {
	f.mu.Lock()
	f.mediumInserted = true
	f.mu.Unlock()
	f.queue.Add(f.nodes[0])
}
