package nodeconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/roster"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/configure"
)

// world is everything that is looked at, by name.
type world struct {
	now      time.Time
	nodes    []*corev1.Node // shared with the cache, as are the reports
	reports  []*v1alpha1.NodeUpdate
	updates  map[string]*v1alpha1.NodeUpdate // also of nodes that have left
	edition  int
	configs  []v1alpha1.NodeConfig
	pools    []v1alpha1.UpdatePool
	contents map[string]*v1alpha1.Content // of type config
	// moving: an update has started and not ended.
	moving bool
	// sources of the NodeConfigs, with the contents of their files.
	sources map[string]configure.Source
}

func (r *Reconciler) gather(ctx context.Context) (*world, error) {
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
	v := r.roster.Look(now)
	w := &world{now: now, nodes: v.Nodes, reports: v.Reports, updates: v.Updates, edition: v.Edition, configs: configs.Items, pools: pools.Items,
		contents: map[string]*v1alpha1.Content{}, sources: map[string]configure.Source{}}
	sort.Slice(w.configs, func(i, j int) bool { return w.configs[i].Name < w.configs[j].Name })
	for i := range contents.Items {
		if c := &contents.Items[i]; c.Type == v1alpha1.ContentConfig {
			w.contents[c.Name] = c
		}
	}
	for i := range moves.Items {
		m := &moves.Items[i]
		w.moving = w.moving || m.Status.StartedAt != nil && m.Status.Phase != v1alpha1.PhaseDone
	}
	files := &configMaps{live: r.Live, read: map[string]*corev1.ConfigMap{}}
	for i := range w.configs {
		if c := &w.configs[i]; c.DeletionTimestamp.IsZero() {
			s, err := files.source(ctx, c)
			if err != nil {
				return nil, err
			}
			w.sources[c.Name] = s
		}
	}
	return w, nil
}

// configMaps are read once per look.
type configMaps struct {
	live client.Reader
	read map[string]*corev1.ConfigMap
}

func (m *configMaps) get(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	if cm, ok := m.read[name]; ok {
		return cm, nil
	}
	cm := &corev1.ConfigMap{}
	err := m.live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		cm, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", v1alpha1.NodesNamespace, name, err)
	}
	m.read[name] = cm
	return cm, nil
}

// source makes plain values of a NodeConfig.
func (m *configMaps) source(ctx context.Context, c *v1alpha1.NodeConfig) (configure.Source, error) {
	s := configure.Source{Name: c.Name, SandboxImage: c.Spec.SandboxImage}
	for i := range c.Spec.Files {
		f := &c.Spec.Files[i]
		cf := fileOf(f)
		problem, err := m.contents(ctx, f.Contents, &cf.Data)
		if err != nil {
			return s, err
		}
		if problem != "" {
			s.Problems = append(s.Problems, "file "+f.Path+": "+problem)
		}
		s.Files = append(s.Files, cf)
	}
	for _, u := range c.Spec.Units {
		cu := configure.Unit{Name: u.Name, State: u.State, Contents: u.Contents, Disruption: model.Disruption(u.Disruption)}
		for _, d := range u.Dropins {
			cu.Dropins = append(cu.Dropins, configure.Dropin{Name: d.Name, Contents: d.Contents})
		}
		s.Units = append(s.Units, cu)
	}
	for _, f := range c.Spec.Fields {
		s.Fields = append(s.Fields, model.ConfigField(f))
	}
	for _, k := range c.Spec.Certificates {
		s.Certificates = append(s.Certificates, model.ConfigCertificate{Name: k.Name, NotBefore: k.NotBefore, DaysLeft: int(k.DaysLeft)})
	}
	if c.Spec.Kubelet != nil && len(c.Spec.Kubelet.Raw) > 0 {
		if err := json.Unmarshal(c.Spec.Kubelet.Raw, &s.Kubelet); err != nil {
			s.Problems = append(s.Problems, "spec.kubelet is no object: "+err.Error())
		}
	}
	return s, nil
}

// fileOf is a file without the bytes that come from here.
func fileOf(f *v1alpha1.NodeFile) model.ConfigFile {
	cf := model.ConfigFile{Path: f.Path, Mode: 0o644, Owner: or(f.Owner, "root"), Group: or(f.Group, "root"), Absent: f.Absent,
		Disruption: model.Disruption(f.Disruption), Units: slices.Clone(f.Units)}
	if f.Mode != nil {
		cf.Mode = uint32(*f.Mode)
	}
	if f.Contents != nil && f.Contents.Payload != nil {
		cf.Payload, cf.Digest = f.Contents.Payload.Name, f.Contents.Payload.Digest
	}
	return cf
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (m *configMaps) contents(ctx context.Context, from *v1alpha1.FileContents, into *[]byte) (problem string, err error) {
	switch {
	case from == nil:
	case from.Inline != nil:
		*into = []byte(*from.Inline)
	case from.Base64 != nil:
		*into = from.Base64
	case from.ConfigMap != nil:
		cm, err := m.get(ctx, from.ConfigMap.Name)
		if err != nil {
			return "", err
		}
		if cm == nil {
			return "there is no ConfigMap " + from.ConfigMap.Name + " in namespace " + v1alpha1.NodesNamespace, nil
		}
		text, ok := cm.Data[from.ConfigMap.Key]
		*into = []byte(text)
		if !ok {
			if *into, ok = cm.BinaryData[from.ConfigMap.Key]; !ok {
				return "ConfigMap " + from.ConfigMap.Name + " has no key " + from.ConfigMap.Key, nil
			}
		}
	}
	return "", nil
}

// matches reports whether a NodeConfig is for a node.
func (w *world) matches(c *v1alpha1.NodeConfig, n *corev1.Node) bool {
	if len(c.Spec.Pools) == 0 {
		return selects(c.Spec.NodeSelector, n.Labels)
	}
	for i := range w.pools {
		if slices.Contains(c.Spec.Pools, w.pools[i].Name) && selects(&w.pools[i].Spec.NodeSelector, n.Labels) {
			return true
		}
	}
	return false
}

// selects: a selector that cannot be read is for no node, none at all for every.
func selects(sel *metav1.LabelSelector, nodeLabels map[string]string) bool {
	if sel == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(sel)
	return err == nil && s.Matches(labels.Set(nodeLabels))
}

// rendered is what one set of NodeConfigs comes to.
type rendered struct {
	name     string // of the Content, empty for nothing wanted
	data     string
	config   model.NodeConfig
	fields   map[string]string // that config wants
	verdicts []model.Verdict
}

// outcome of a look: what every node is to be told.
type outcome struct {
	// byNode is in the order of the nodes.
	byNode []*rendered
	// of every NodeConfig: how many nodes it matches, how many are as it wants,
	// the first problem.
	matched, current map[string]int32
	problem          map[string]*model.Verdict
}

// share is what is remembered of a node until it changes.
type share struct {
	// set of the NodeConfigs that match it.
	set *set
	// same reports whether it is as the rendered configuration of this name wants.
	same bool
	name string
	// known is false before that was looked at.
	known bool
}

// set of NodeConfigs, with what they come to in this look.
type set struct {
	names []string
	nodes int32
	same  int32
	*rendered
}

func (w *world) decide(memory *memory) *outcome {
	sets := memory.under(w)
	d := &outcome{byNode: make([]*rendered, len(w.nodes)), matched: map[string]int32{}, current: map[string]int32{}, problem: map[string]*model.Verdict{}}
	for _, s := range sets {
		s.nodes, s.same, s.rendered = 0, 0, nil
	}
	for i, n := range w.nodes {
		x, unchanged := memory.row.At(i, n, w.reports[i])
		if !unchanged {
			*x = share{set: memory.of(w, n)}
		}
		if x.set.rendered == nil {
			x.set.rendered = w.render(x.set.names)
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
			d.count(s)
		}
	}
	return d
}

// memory has what nodes come to, from one look to the next.
type memory struct {
	row  roster.Row[share]
	seen string
	sets map[string]*set
}

// under takes in the NodeConfigs and pools as they select now.
func (m *memory) under(w *world) map[string]*set {
	var b strings.Builder
	for i := range w.configs {
		c := &w.configs[i]
		fmt.Fprintf(&b, "%s %d %t,", c.UID, c.Generation, c.DeletionTimestamp.IsZero())
	}
	for i := range w.pools {
		fmt.Fprintf(&b, "%s %d,", w.pools[i].UID, w.pools[i].Generation)
	}
	if seen := b.String(); m.sets == nil || m.seen != seen {
		m.seen, m.sets = seen, map[string]*set{}
	}
	m.row.Under(m.seen, w.edition, w.nodes)
	return m.sets
}

// of is the set of the NodeConfigs that match a node.
func (m *memory) of(w *world, n *corev1.Node) *set {
	var names []string
	for j := range w.configs {
		if c := &w.configs[j]; c.DeletionTimestamp.IsZero() && w.matches(c, n) {
			names = append(names, c.Name)
		}
	}
	key := strings.Join(names, " ")
	if m.sets[key] == nil {
		m.sets[key] = &set{names: names}
	}
	return m.sets[key]
}

func (w *world) render(names []string) *rendered {
	var sources []configure.Source
	for _, name := range names {
		sources = append(sources, w.sources[name])
	}
	c, verdicts := configure.Merge(sources)
	r := &rendered{config: c, fields: c.Fields(), verdicts: verdicts}
	if len(verdicts) == 0 && !c.Empty() {
		r.data = string(c.JSON())
		r.name = v1alpha1.ContentName(v1alpha1.ContentConfig, r.data)
	}
	return r
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

func (d *outcome) count(s *set) {
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

// concerns: a conflict is said of both NodeConfigs.
func concerns(v *model.Verdict, name string) bool {
	return v.Object == "" || v.Object == "NodeConfig/"+name || v.Reason == v1alpha1.ReasonConfigConflict && slices.Contains(strings.Fields(v.Message), name)
}
