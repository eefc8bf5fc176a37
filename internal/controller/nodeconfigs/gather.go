package nodeconfigs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/pipeline/nodeconfig"
)

// configSnapshot is the input of one reconcile, by name.
type configSnapshot struct {
	now      time.Time
	nodes    []*corev1.Node // of the index, as are the reports: do not change them
	reports  []*v1alpha1.NodeUpdate
	departed []*v1alpha1.NodeUpdate // of nodes that have left
	edition  int
	configs  []v1alpha1.NodeConfig
	pools    []v1alpha1.UpdatePool
	contents map[string]*v1alpha1.Content // of type config
	// moving: an update has started and not ended.
	moving bool
	// sources of the NodeConfigs, with the contents of their files.
	sources map[string]nodeconfig.Source
	// images of pools that have an OSImage, by the pool's name.
	images    map[string]*poolImage
	selectors nodeindex.Selectors
}

func (r *Reconciler) gather(ctx context.Context) (*configSnapshot, error) {
	var configs v1alpha1.NodeConfigList
	var pools v1alpha1.UpdatePoolList
	var contents v1alpha1.ContentList
	var moves v1alpha1.ClusterUpdateList
	for _, l := range []client.ObjectList{&configs, &pools, &contents, &moves} {
		if err := r.Client.List(ctx, l); err != nil {
			return nil, err
		}
	}
	now := r.Now()
	v := r.nodes.Refresh()
	w := &configSnapshot{now: now, nodes: v.Nodes, reports: v.Reports, departed: v.Departed, edition: v.Edition, configs: configs.Items, pools: pools.Items,
		contents: map[string]*v1alpha1.Content{}, sources: map[string]nodeconfig.Source{}}
	sortConfigs(w.configs)
	for i := range contents.Items {
		if c := &contents.Items[i]; c.Type == v1alpha1.ContentConfig {
			w.contents[c.Name] = c
		}
	}
	for i := range moves.Items {
		m := &moves.Items[i]
		w.moving = w.moving || m.Status.StartedAt != nil && m.Status.Phase != v1alpha1.PhaseDone
	}
	var err error
	if w.sources, err = Sources(ctx, r.Live, w.configs); err != nil {
		return nil, err
	}
	return w, r.gatherImages(ctx, w)
}

func sortConfigs(list []v1alpha1.NodeConfig) {
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
}

// Sources are the plain values of NodeConfigs by name, with the contents of their
// files; live reads ConfigMaps past the cache.
func Sources(ctx context.Context, live client.Reader, configs []v1alpha1.NodeConfig) (map[string]nodeconfig.Source, error) {
	maps := &configMaps{live: live, read: map[string]*convert.ConfigMap{}}
	out := map[string]nodeconfig.Source{}
	for i := range configs {
		if c := &configs[i]; c.DeletionTimestamp.IsZero() {
			s, err := convert.NodeConfigSource(ctx, maps.get, c)
			if err != nil {
				return nil, err
			}
			out[c.Name] = s
		}
	}
	return out, nil
}

// configMaps are read once per look.
type configMaps struct {
	live client.Reader
	read map[string]*convert.ConfigMap
}

func (m *configMaps) get(ctx context.Context, name string) (*convert.ConfigMap, error) {
	if cm, ok := m.read[name]; ok {
		return cm, nil
	}
	var cm corev1.ConfigMap
	var data *convert.ConfigMap
	err := m.live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &cm)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", v1alpha1.NodesNamespace, name, err)
	}
	if err == nil {
		data = &convert.ConfigMap{Data: cm.Data, BinaryData: cm.BinaryData}
	}
	m.read[name] = data
	return data, nil
}

// matches reports whether a NodeConfig is for a node.
func (w *configSnapshot) matches(c *v1alpha1.NodeConfig, n *corev1.Node) bool {
	if len(c.Spec.Pools) == 0 {
		return w.selectors.Match(c.Spec.NodeSelector, n.Labels)
	}
	for i := range w.pools {
		if slices.Contains(c.Spec.Pools, w.pools[i].Name) && w.selectors.Match(&w.pools[i].Spec.NodeSelector, n.Labels) {
			return true
		}
	}
	return false
}

// rendered is what one set of NodeConfigs comes to.
type rendered struct {
	name     string // of the Content, empty for nothing wanted
	data     string
	config   model.NodeConfig
	fields   map[string]string // that config wants
	verdicts []model.Blocker
}

// nodeTargets is the result of a reconcile: the configuration of every node.
type nodeTargets struct {
	// byNode is in the order of the nodes.
	byNode []*rendered
	// of every NodeConfig: how many nodes it matches, how many are as it wants,
	// the first problem.
	matched, current map[string]int32
	problem          map[string]*model.Blocker
}

// nodeMatch is what is remembered of a node until it changes.
type nodeMatch struct {
	// set of the NodeConfigs that match it.
	set *configSet
	// same reports whether it is as the rendered configuration of this name wants.
	same bool
	name string
	// known is false before the first comparison.
	known bool
}

// configSet of NodeConfigs for nodes of one pool, with what they come to in this look.
type configSet struct {
	names []string
	pool  string
	nodes int32
	same  int32
	*rendered
}

func (w *configSnapshot) decide(memory *matchCache) *nodeTargets {
	sets := memory.refresh(w)
	d := &nodeTargets{byNode: make([]*rendered, len(w.nodes)), matched: map[string]int32{}, current: map[string]int32{}, problem: map[string]*model.Blocker{}}
	for _, s := range sets {
		s.nodes, s.same, s.rendered = 0, 0, nil
	}
	for i, n := range w.nodes {
		x, unchanged := memory.row.At(i, n, w.reports[i])
		if !unchanged {
			*x = nodeMatch{set: memory.setOf(w, n)}
		}
		if x.set.rendered == nil {
			x.set.rendered = w.render(x.set.names, x.set.pool)
		}
		r := x.set.rendered
		if !x.known || x.name != r.name {
			x.name, x.same, x.known = r.name, r.wants(fieldsOf(w.reports[i])), true
		}
		d.byNode[i] = r
		x.set.nodes++
		if x.same && len(r.verdicts) == 0 {
			x.set.same++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		if s := sets[key]; s.nodes > 0 {
			d.addSet(s)
		}
	}
	return d
}

// matchCache has what nodes come to, from one look to the next.
type matchCache struct {
	row  nodeindex.Row[nodeMatch]
	seen string
	sets map[string]*configSet
}

// refresh takes in the NodeConfigs and pools as they select now.
func (m *matchCache) refresh(w *configSnapshot) map[string]*configSet {
	var b strings.Builder
	for i := range w.configs {
		c := &w.configs[i]
		fmt.Fprintf(&b, "%s %d %t,", c.UID, c.Generation, c.DeletionTimestamp.IsZero())
	}
	for i := range w.pools {
		fmt.Fprintf(&b, "%s %d,", w.pools[i].UID, w.pools[i].Generation)
	}
	if seen := b.String(); m.sets == nil || m.seen != seen {
		m.seen, m.sets = seen, map[string]*configSet{}
	}
	m.row.Under(m.seen, w.edition, w.nodes)
	return m.sets
}

// setOf is the set of the NodeConfigs that match a node, and of its pool.
func (m *matchCache) setOf(w *configSnapshot, n *corev1.Node) *configSet {
	var names []string
	for j := range w.configs {
		if c := &w.configs[j]; c.DeletionTimestamp.IsZero() && w.matches(c, n) {
			names = append(names, c.Name)
		}
	}
	pool := w.poolOf(n)
	key := pool + "/" + strings.Join(names, " ")
	if m.sets[key] == nil {
		m.sets[key] = &configSet{names: names, pool: pool}
	}
	return m.sets[key]
}

func (w *configSnapshot) render(names []string, pool string) *rendered {
	var sources []nodeconfig.Source
	for _, name := range names {
		sources = append(sources, w.sources[name])
	}
	p := w.pool(pool)
	c, verdicts := nodeconfig.Merge(Assign(p, w.held(pool), sources))
	if len(verdicts) == 0 {
		c, verdicts = w.withImage(p, names, c)
	}
	c.Drift = driftOf(p, c)
	c = osimage.AssignDrift(driftRules(p), c)
	r := &rendered{config: c, fields: c.Fields(), verdicts: verdicts}
	if len(verdicts) == 0 && !c.Empty() {
		r.data = string(c.JSON())
		r.name = v1alpha1.ContentName(v1alpha1.ContentConfig, r.data)
	}
	return r
}

// held is what the image of a pool was built from.
func (w *configSnapshot) held(pool string) model.NodeConfig {
	if i := w.images[pool]; i != nil {
		return i.made
	}
	return model.NodeConfig{}
}

// wants reports whether a node with these fields is as the configuration wants.
func (r *rendered) wants(have map[string]string) bool {
	for field, want := range r.fields {
		if have[field] != want {
			return false
		}
	}
	return true
}

func (d *nodeTargets) addSet(s *configSet) {
	for _, name := range s.names {
		d.matched[name] += s.nodes
		d.current[name] += s.same
		for i := range s.verdicts {
			if v := &s.verdicts[i]; d.problem[name] == nil && concerns(v, name) {
				d.problem[name] = v
			}
		}
	}
}

// concerns reports whether a blocker is about a NodeConfig; a conflict is about both.
func concerns(v *model.Blocker, name string) bool {
	return v.Object == "" || v.Object == "NodeConfig/"+name || v.Reason == v1alpha1.ReasonConfigConflict && slices.Contains(strings.Fields(v.Message), name)
}
