package plans

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// Store reads and writes plans. Client reads from the cache, Live past it.
type Store struct {
	Client client.Client
	Live   client.Reader

	mu sync.Mutex
	// read is the plan that was read last, hop the hop of it, written the plan that was
	// written last.
	read, hop *StoredPlan
	written   names
}

// names of the Contents of a plan.
type names struct {
	digest, root string
	parts        []string
}

// StoredPlan is a plan that was read. It is shared: do not change it.
type StoredPlan struct {
	model.Plan
	name, digest string
	at           map[string]int
}

// hopOf is the share of one hop of a plan, which the digest of the whole plan covers.
func (k *StoredPlan) hopOf(bundle string) (*StoredPlan, error) {
	hop, ok := k.Hop(bundle)
	if !ok {
		return nil, fmt.Errorf("the plan %s has no hop to bundle %s", k.digest, bundle)
	}
	out := &StoredPlan{Plan: hop, name: k.name, digest: k.digest, at: make(map[string]int, len(hop.Nodes))}
	for i := range hop.Nodes {
		out.at[hop.Nodes[i].Node] = i
	}
	return out, nil
}

// ForNode is a node's share; ok is false if the plan does not move it.
func (k *StoredPlan) ForNode(node string) (np model.NodePlan, ok bool) {
	i, ok := k.at[node]
	if !ok {
		return np, false
	}
	return k.Nodes[i], true
}

// Write sees to it that the Contents of a plan are there, and names the one to
// begin with.
func (s *Store) Write(ctx context.Context, p model.Plan, digest string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written.digest == digest && digest != "" {
		there, err := s.allExist(ctx, append(s.written.parts, s.written.root))
		if there || err != nil {
			return s.written.root, err
		}
	}
	text, parts := p.Store(model.PartLimit, func(text string) string { return v1alpha1.ContentName(v1alpha1.ContentPlan, text) })
	w := names{digest: digest}
	for name, part := range parts {
		w.parts = append(w.parts, name)
		if _, err := s.createContent(ctx, part); err != nil {
			return "", err
		}
	}
	var err error
	if w.root, err = s.createContent(ctx, text); err != nil {
		return "", err
	}
	s.written = w
	return w.root, nil
}

func (s *Store) allExist(ctx context.Context, all []string) (bool, error) {
	for _, name := range all {
		err := s.Client.Get(ctx, key(name), &v1alpha1.Content{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read Content %s: %w", name, err)
		}
	}
	return true, nil
}

func (s *Store) createContent(ctx context.Context, text string) (name string, err error) {
	o := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(v1alpha1.ContentPlan, text)}, Type: v1alpha1.ContentPlan, Data: text}
	name = o.Name
	err = s.Client.Get(ctx, key(name), &v1alpha1.Content{})
	if apierrors.IsNotFound(err) {
		err = s.Client.Create(ctx, o, client.FieldOwner(v1alpha1.FieldOwnerController))
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("make Content %s: %w", name, err)
	}
	return name, nil
}

// ReadHop reads the current hop of an update's plan.
func (s *Store) ReadHop(ctx context.Context, u *v1alpha1.ClusterUpdate) (*StoredPlan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.readPlan(ctx, u)
	if err != nil {
		return nil, err
	}
	bundle := u.HopBundle()
	if s.hop == nil || s.hop.name != k.name || s.hop.digest != k.digest || s.hop.Target.Bundle != bundle {
		if s.hop, err = k.hopOf(bundle); err != nil {
			return nil, fmt.Errorf("read the plan of ClusterUpdate %s: %w", u.Name, err)
		}
	}
	return s.hop, nil
}

// Read reads the plan of an update; its digest must be the one in the status.
func (s *Store) Read(ctx context.Context, u *v1alpha1.ClusterUpdate) (*StoredPlan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readPlan(ctx, u)
}

func (s *Store) readPlan(ctx context.Context, u *v1alpha1.ClusterUpdate) (*StoredPlan, error) {
	name, digest := u.Status.Plan, u.Status.PlanDigest
	if s.read != nil && s.read.name == name && s.read.digest == digest {
		return s.read, nil
	}
	p, err := Load(ctx, cacheThenLive{s.Client, s.Live}, name)
	if err != nil {
		return nil, fmt.Errorf("read the plan of ClusterUpdate %s: %w", u.Name, err)
	}
	if got := p.Digest(); got != digest {
		return nil, fmt.Errorf("the plan of ClusterUpdate %s has the digest %s, %s was approved", u.Name, got, digest)
	}
	k := &StoredPlan{Plan: p, name: name, digest: digest, at: make(map[string]int, len(p.Nodes))}
	for i := range p.Nodes {
		k.at[p.Nodes[i].Node] = i
	}
	s.read = k
	return k, nil
}

// cacheThenLive asks the cache, and the API server for what the cache does not have.
type cacheThenLive struct {
	client.Reader
	live client.Reader
}

func (e cacheThenLive) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := e.Reader.Get(ctx, k, o, opts...)
	if apierrors.IsNotFound(err) {
		return e.live.Get(ctx, k, o, opts...)
	}
	return err
}

var errName = errors.New("the data is not what the name says")

// Load reads a plan by the name of the Content it begins with.
func Load(ctx context.Context, c client.Reader, name string) (model.Plan, error) {
	read := func(name string) (string, error) {
		var o v1alpha1.Content
		if err := c.Get(ctx, key(name), &o); err != nil {
			return "", err
		}
		if v1alpha1.ContentName(v1alpha1.ContentPlan, o.Data) != name {
			return "", fmt.Errorf("of Content %s %w", name, errName)
		}
		return o.Data, nil
	}
	text, err := read(name)
	if err != nil {
		return model.Plan{}, err
	}
	return model.LoadPlan(text, read)
}

func key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}
}
