package apiclient

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/componentversion"
)

// callTime bounds every call that is not a watch.
const callTime = 15 * time.Second

// watchTime is how long one watch lasts before the list is read anew.
const watchTime = 8 * time.Minute

// Client is a client of the API server.
type Client struct {
	kubeconfig, node string
	log              *slog.Logger
	codec            serializer.CodecFactory
	params           runtime.ParameterCodec

	mu    sync.Mutex
	rest  *rest.RESTClient
	stamp string
	clock skew
	// dropped are the members that were left out of the last written status.
	dropped []string
}

// New makes a client; nothing is read or dialled yet.
func New(kubeconfig, node string, log *slog.Logger) *Client {
	scheme := kindsRead()
	return &Client{kubeconfig: kubeconfig, node: node, log: log,
		codec: serializer.NewCodecFactory(scheme), params: runtime.NewParameterCodec(scheme)}
}

// kindsRead are the kinds that this client decodes. All kinds of the group would make the program
// larger by their copying.
func kindsRead() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(v1alpha1.GroupVersion, &v1alpha1.NodeUpdate{}, &v1alpha1.NodeUpdateList{}, &v1alpha1.Content{}, &v1alpha1.BundleList{}, &v1alpha1.TrustPolicyList{},
		&v1alpha1.ClusterUpdate{}, &v1alpha1.ClusterUpdateList{}, &v1alpha1.ImageTrack{}, &v1alpha1.NodeConfigList{}, &v1alpha1.UpdatePoolList{}, &v1alpha1.OSImageList{})
	metav1.AddToGroupVersion(s, v1alpha1.GroupVersion)
	metav1.AddToGroupVersion(s, metav1.SchemeGroupVersion)
	return s
}

// client builds a new client when the kubeconfig has changed. The transport itself reloads
// renewed certificates in files that the kubeconfig names.
func (c *Client) client() (*rest.RESTClient, error) {
	st, err := os.Stat(c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubelet's kubeconfig: %w", err)
	}
	stamp := fmt.Sprint(st.Size(), st.ModTime().UnixNano())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rest != nil && c.stamp == stamp {
		return c.rest, nil
	}
	conf, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubelet's kubeconfig %s: %w", c.kubeconfig, err)
	}
	gv := v1alpha1.GroupVersion
	conf.GroupVersion, conf.APIPath = &gv, "/apis"
	conf.NegotiatedSerializer = c.codec.WithoutConversion()
	conf.UserAgent = "refit-agent/" + componentversion.Refit()
	conf.QPS, conf.Burst = 5, 10
	conf.Wrap(func(next http.RoundTripper) http.RoundTripper { return skewTransport{next, &c.clock, time.Now} })
	r, err := rest.RESTClientFor(conf)
	if err != nil {
		return nil, fmt.Errorf("kubelet's kubeconfig %s: %w", c.kubeconfig, err)
	}
	c.rest, c.stamp = r, stamp
	return r, nil
}

// Watch calls got with the node's NodeUpdate now and at every change; nil means that there
// is none. It returns only when the context ends. It retries an unavailable API server, with
// growing pauses (up to 8 s).
func (c *Client) Watch(ctx context.Context, got func(*v1alpha1.NodeUpdate)) {
	wait := time.Second
	for {
		began := time.Now()
		err := c.listAndWatch(ctx, got)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute || err == nil {
			wait = time.Second
		}
		if err != nil && wait == time.Second { // once, not for every try
			c.log.Info("API server unavailable; retrying", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(wait*2, 8*time.Second)
	}
}

func (c *Client) options() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", c.node).String()}
}

func (c *Client) listAndWatch(ctx context.Context, got func(*v1alpha1.NodeUpdate)) error {
	r, err := c.client()
	if err != nil {
		return err
	}
	var list v1alpha1.NodeUpdateList
	opts := c.options()
	lctx, cancel := context.WithTimeout(ctx, callTime)
	err = r.Get().Namespace(v1alpha1.NodesNamespace).Resource("nodeupdates").VersionedParams(&opts, c.params).Do(lctx).Into(&list)
	cancel()
	if err != nil {
		return fmt.Errorf("list of NodeUpdates: %w", err)
	}
	if len(list.Items) == 0 {
		got(nil)
	} else {
		got(&list.Items[0])
	}
	seconds := int64(watchTime / time.Second)
	opts.ResourceVersion, opts.Watch, opts.TimeoutSeconds = list.ResourceVersion, true, &seconds
	wctx, cancel := context.WithTimeout(ctx, watchTime+callTime)
	defer cancel()
	w, err := r.Get().Namespace(v1alpha1.NodesNamespace).Resource("nodeupdates").VersionedParams(&opts, c.params).Watch(wctx)
	if err != nil {
		return fmt.Errorf("watch of the NodeUpdate: %w", err)
	}
	defer w.Stop()
	return readEvents(w, got)
}

func readEvents(w watch.Interface, got func(*v1alpha1.NodeUpdate)) error {
	for e := range w.ResultChan() {
		nu, ok := e.Object.(*v1alpha1.NodeUpdate)
		switch {
		case e.Type == watch.Error:
			return fmt.Errorf("watch of the NodeUpdate ended: %v", e.Object)
		case !ok:
			continue
		case e.Type == watch.Deleted:
			got(nil)
		default:
			got(nu)
		}
	}
	return nil
}

// Content reads a Content by name. The caller compares data and name.
func (c *Client) Content(ctx context.Context, name string) (*v1alpha1.Content, error) {
	r, err := c.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out := &v1alpha1.Content{}
	if err := r.Get().Namespace(v1alpha1.NodesNamespace).Resource("contents").Name(name).Do(ctx).Into(out); err != nil {
		return nil, fmt.Errorf("Content %s: %w", name, err)
	}
	return out, nil
}

// ApplyStatus writes the node's whole status, as its only owner. Members that the cluster's
// CRDs do not declare are left out: this agent may be newer than the CRDs.
func (c *Client) ApplyStatus(ctx context.Context, status *v1alpha1.NodeUpdateStatus) error {
	r, err := c.client()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("status of the NodeUpdate: %w", err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(raw, &object); err != nil {
		return fmt.Errorf("status of the NodeUpdate: %w", err)
	}
	object["apiVersion"], object["kind"] = v1alpha1.GroupVersion.String(), "NodeUpdate"
	object["metadata"] = map[string]any{"name": c.node, "namespace": v1alpha1.NodesNamespace}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var left []string
	for range maxUndeclared {
		err = c.apply(ctx, r, object)
		dropped := dropUndeclared(object, err)
		if len(dropped) == 0 {
			break
		}
		left = append(left, dropped...)
	}
	if err != nil {
		return fmt.Errorf("status of the NodeUpdate: %w", err)
	}
	c.logDropped(left)
	return nil
}

// apply writes the node's status with a server-side apply.
func (c *Client) apply(ctx context.Context, r *rest.RESTClient, object map[string]any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	force := true
	opts := metav1.PatchOptions{FieldManager: v1alpha1.FieldOwnerAgent, Force: &force}
	return r.Patch(types.ApplyPatchType).Namespace(v1alpha1.NodesNamespace).Resource("nodeupdates").Name(c.node).
		SubResource("status").VersionedParams(&opts, c.params).Body(body).Do(ctx).Error()
}

// logDropped logs which members the last write left out, when they have changed.
func (c *Client) logDropped(members []string) {
	c.mu.Lock()
	same := slices.Equal(c.dropped, members)
	c.dropped = members
	c.mu.Unlock()
	if !same && len(members) > 0 {
		c.log.Warn("status written without members that the cluster's CRDs do not declare: this agent is newer, run refit install", "members", members)
	}
}
