package hooks

import (
	"context"
	"fmt"
	"maps"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/outbound"
)

// Registered is an external updater registered by an Updater object.
type Registered struct {
	Name string
	Spec v1alpha1.UpdaterSpec

	key registration
	ext *Extension
	// broken is why it cannot be called at all.
	broken string
}

// registration identifies one edit of an Updater object.
type registration struct {
	uid        string
	generation int64
}

// Registry caches the connections to registered updaters.
type Registry struct {
	// Servers restricts the connections.
	Servers *outbound.Guard

	mu         sync.Mutex
	registered map[string]*Registered
}

// List returns the registered updaters in the order in which they are called, the same for
// every hook.
func (g *Registry) List(ctx context.Context, c client.Reader) ([]*Registered, error) {
	var l v1alpha1.UpdaterList
	if err := c.List(ctx, &l); err != nil {
		return nil, err
	}
	sort.Slice(l.Items, func(i, j int) bool {
		a, b := &l.Items[i], &l.Items[j]
		if a.Spec.Order != b.Spec.Order {
			return a.Spec.Order < b.Spec.Order
		}
		return a.Name < b.Name
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	now := map[string]*Registered{}
	out := make([]*Registered, 0, len(l.Items))
	for i := range l.Items {
		u := &l.Items[i]
		r := g.registered[u.Name]
		if key := (registration{string(u.UID), u.Generation}); r == nil || r.key != key {
			r = register(u, key, g.Servers)
		}
		now[u.Name] = r
		out = append(out, r)
	}
	for name, old := range g.registered {
		if now[name] != old && old.ext != nil {
			old.ext.Close()
		}
	}
	g.registered = now
	return out, nil
}

// ID identifies the registration; it changes with every edit of the Updater.
func (r *Registered) ID() string { return fmt.Sprintf("%s %s %d", r.Name, r.key.uid, r.key.generation) }

// Below reports whether a path is in the list, or below one of its paths.
func Below(path string, list []string) bool {
	for _, p := range list {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// defaultTimeout is the timeout of a call if the API server's default is missing.
const defaultTimeout = 3 * time.Second

func register(u *v1alpha1.Updater, key registration, servers *outbound.Guard) *Registered {
	timeout := time.Duration(u.Spec.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	r := &Registered{Name: u.Name, Spec: u.Spec, key: key}
	var err error
	if r.ext, err = NewExtension(u.Spec.URL, []byte(u.Spec.CABundle), timeout, servers); err != nil {
		r.broken = err.Error()
	}
	return r
}

// maxMessage is the length of an extension's message that is repeated.
const maxMessage = 500

// Ask sends a request with the settings of the ExtensionConfig, overridden by the updater's
// own. silent is why there is no answer, "" if there is one.
func (r *Registered) Ask(ctx context.Context, h Hook, req Request) (a Answer, silent string) {
	if r.broken != "" {
		return a, "Updater " + r.Name + ": " + r.broken
	}
	settings := maps.Clone(req.Settings)
	if settings == nil {
		settings = map[string]string{}
	}
	maps.Copy(settings, r.Spec.Settings)
	req.Settings = settings
	a, err := r.ext.Ask(ctx, h, req)
	if err != nil {
		return a, "Updater " + r.Name + ": " + err.Error()
	}
	a.Message = text.Truncate(a.Message, maxMessage)
	return a, ""
}
