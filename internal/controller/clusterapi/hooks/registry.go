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

// Registered is an external updater as an Updater object registers it.
type Registered struct {
	Name string
	Spec v1alpha1.UpdaterSpec

	key registration
	ext *Extension
	// broken says why it cannot be asked at all.
	broken string
}

// registration tells one Updater object from a later one of the same name.
type registration struct {
	uid        string
	generation int64
}

// Registry keeps the connections to registered updaters.
type Registry struct {
	// Servers guards the connections.
	Servers *outbound.Guard

	mu   sync.Mutex
	kept map[string]*Registered
}

// List reads the registered updaters, in the order in which they are asked and
// called: the same for every hook.
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
		r := g.kept[u.Name]
		if key := (registration{string(u.UID), u.Generation}); r == nil || r.key != key {
			r = register(u, key, g.Servers)
		}
		now[u.Name] = r
		out = append(out, r)
	}
	for name, old := range g.kept {
		if now[name] != old && old.ext != nil {
			old.ext.Close()
		}
	}
	g.kept = now
	return out, nil
}

// ID names the registration: another one after every edit of the Updater.
func (r *Registered) ID() string { return fmt.Sprintf("%s %s %d", r.Name, r.key.uid, r.key.generation) }

// Below reports whether a path is one of the list, or part of one of them.
func Below(path string, list []string) bool {
	for _, p := range list {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// defaultTimeout of a call, where the API server's default is missing.
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

// maxSaid is how much of another extension's message is repeated.
const maxSaid = 500

// Ask sends a request with the settings of the ExtensionConfig, and over them the
// updater's own. silent says why there is no answer, "" if there is one.
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
	a.Message = text.Truncate(a.Message, maxSaid)
	return a, ""
}
