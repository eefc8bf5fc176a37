package imagecmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/render"
)

// OSHistory is the OS images that nodes have booted.
type OSHistory struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Pools      []OSPoolHistory `json:"pools"`
	Nodes      []OSNodeHistory `json:"nodes"`
}

// OSPoolHistory is the images of one pool, in the order in which a node of it first booted them.
type OSPoolHistory struct {
	Pool   string    `json:"pool"`
	Images []OSBoots `json:"images"`
}

// OSBoots is what nodes of a pool did with one image.
type OSBoots struct {
	// Image as repository@digest, or the digest alone where no registry knows a name.
	Image string `json:"image"`
	// Build that created the image, while its OSBuild is in the cluster.
	Build string     `json:"build,omitempty"`
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
	// Booted counts nodes that have booted it, Running those that run it now, Failed those that
	// were not well with it. Stock counts nodes that ran it before refit.
	Booted  int `json:"booted"`
	Running int `json:"running"`
	Failed  int `json:"failed"`
	Stock   int `json:"stock"`
}

// OSNodeHistory is the images of one node, the oldest first.
type OSNodeHistory struct {
	Node string `json:"node"`
	Pool string `json:"pool,omitempty"`
	// Stock is what the node ran before refit, empty if unknown; Running is the booted digest.
	Stock   string   `json:"stock,omitempty"`
	Running string   `json:"running"`
	Boots   []OSBoot `json:"boots"`
}

// OSBoot is one change of the OS image of a node.
type OSBoot struct {
	At    time.Time `json:"at"`
	Image string    `json:"image"`
	// Result is failed if the node was not well with it, and returned if it came back to it; empty
	// for a good boot.
	Result string `json:"result,omitempty"`
}

func newHistory(a *inputs.Access) *cobra.Command {
	var pool string
	c := &cobra.Command{
		Use: "history [NODE]", Short: "List the OS images that nodes have booted", Args: console.Args(cobra.MaximumNArgs(1)),
		Long: `List the OS images that nodes have booted, in order: for each pool, or for one node.
The agents report the last six changes of a node, and what the node ran before refit
booted the first image on it (stock). refit rollback --pool POOL --stock returns a pool
to that.`,
		Example: "  refit image history --pool edge\n  refit image history worker-1 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			format := cmd.Flag("output").Value.String()
			if err := console.CheckOutput(format); err != nil {
				return err
			}
			r, _, err := a.Reader()
			if err != nil {
				return err
			}
			v, err := readHistory(cmd.Context(), r, pool, strings.Join(args, ""))
			if err != nil {
				return err
			}
			if !console.IsTable(format) {
				return render.Value(a.Out, format, v)
			}
			return v.table(a.Out, len(args) > 0)
		},
	}
	c.Flags().StringVar(&pool, "pool", "", "UpdatePool whose nodes are listed (default: all)")
	console.OutputFlag(c)
	a.FromFlag(c.Flags())
	return c
}

// readHistory reads the history of the nodes of a pool, or of one node; empty names are all.
func readHistory(ctx context.Context, r client.Reader, pool, node string) (*OSHistory, error) {
	var builds v1alpha1.OSBuildList
	if err := r.List(ctx, &builds); err != nil {
		return nil, inputs.ListError(err)
	}
	p, err := readPools(ctx, r, pool)
	if err != nil {
		return nil, err
	}
	v := &OSHistory{APIVersion: "refit.dev/oshistory/v1", Kind: "OSHistory", Pools: []OSPoolHistory{}, Nodes: []OSNodeHistory{}}
	for i := range p.updates.Items {
		u := &p.updates.Items[i]
		if node != "" && u.Name != node || pool != "" && p.of[u.Name] != pool {
			continue
		}
		if h, ok := nodeHistory(u); ok {
			h.Pool = p.of[u.Name]
			v.Nodes = append(v.Nodes, h)
		}
	}
	if node != "" && len(v.Nodes) == 0 {
		return nil, console.UsageErrorf("node %s reports no OS image: its agent is not there, or its pool has no OSImage", node)
	}
	slices.SortFunc(v.Nodes, func(a, b OSNodeHistory) int { return strings.Compare(a.Node, b.Node) })
	v.addPools(builds.Items)
	return v, nil
}

// poolNodes are the pools, and the nodes of each.
type poolNodes struct {
	pools   v1alpha1.UpdatePoolList
	updates v1alpha1.NodeUpdateList
	// of is the pool of each node.
	of map[string]string
}

// readPools fails if the named pool is not there; an empty name is no question.
func readPools(ctx context.Context, r client.Reader, named string) (*poolNodes, error) {
	p := &poolNodes{}
	var nodes corev1.NodeList
	if err := r.List(ctx, &p.updates, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return nil, inputs.ListError(err)
	}
	for _, l := range []client.ObjectList{&p.pools, &nodes} {
		if err := r.List(ctx, l); err != nil {
			return nil, inputs.ListError(err)
		}
	}
	if p.of = poolNames(p.pools.Items, nodes.Items); named != "" && p.pool(named) == nil {
		return nil, console.UsageErrorf("UpdatePool %s not found: kubectl get updatepools lists all", named)
	}
	return p, nil
}

func (p *poolNodes) pool(name string) *v1alpha1.UpdatePool {
	for i := range p.pools.Items {
		if p.pools.Items[i].Name == name {
			return &p.pools.Items[i]
		}
	}
	return nil
}

// poolNames is the pool of each node, empty for a node in two.
func poolNames(pools []v1alpha1.UpdatePool, nodes []corev1.Node) map[string]string {
	out := map[string]string{}
	for i := range pools {
		selector, err := metav1.LabelSelectorAsSelector(&pools[i].Spec.NodeSelector)
		if err != nil {
			continue // the pool's own condition says so
		}
		for j := range nodes {
			if !selector.Matches(labels.Set(nodes[j].Labels)) {
				continue
			}
			if _, twice := out[nodes[j].Name]; twice {
				out[nodes[j].Name] = ""
				continue
			}
			out[nodes[j].Name] = pools[i].Name
		}
	}
	return out
}

// nodeHistory reads the fields that an agent reports; ok is false if it reports no OS.
func nodeHistory(u *v1alpha1.NodeUpdate) (h OSNodeHistory, ok bool) {
	if u.Status.Observed == nil || u.Status.Observed.Fields[model.FieldOSDriver] == "" {
		return h, false
	}
	f := u.Status.Observed.Fields
	h = OSNodeHistory{Node: u.Name, Stock: f[model.FieldOSStock], Running: f[model.FieldOSImage], Boots: []OSBoot{}}
	for _, entry := range strings.Split(f[model.FieldOSHistory], "; ") {
		when, image, _ := strings.Cut(entry, " ")
		at, err := time.Parse(time.RFC3339, when)
		if err != nil {
			continue // another version of the agent wrote it
		}
		b := OSBoot{At: at, Image: image}
		for _, word := range []string{model.OSFailed, model.OSReturned} {
			if rest, ok := strings.CutSuffix(b.Image, " "+word); ok {
				b.Image, b.Result = rest, word
			}
		}
		h.Boots = append(h.Boots, b)
	}
	return h, true
}

// addPools sums the nodes of each pool.
func (v *OSHistory) addPools(builds []v1alpha1.OSBuild) {
	byPool := map[string][]OSNodeHistory{}
	for _, n := range v.Nodes {
		byPool[n.Pool] = append(byPool[n.Pool], n)
	}
	for pool, nodes := range byPool {
		v.Pools = append(v.Pools, OSPoolHistory{Pool: pool, Images: sumBoots(nodes, builds)})
	}
	slices.SortFunc(v.Pools, func(a, b OSPoolHistory) int { return strings.Compare(a.Pool, b.Pool) })
}

// sumBoots sums what nodes did with each image. Stock images come first, then the others in the
// order of their first boot.
func sumBoots(nodes []OSNodeHistory, builds []v1alpha1.OSBuild) []OSBoots {
	sums := bootSums{}
	for _, n := range nodes {
		sums.addNode(n)
	}
	for i := range builds {
		if o := sums[builds[i].Status.Digest]; o != nil {
			o.Build = builds[i].Name
		}
	}
	var out []OSBoots
	for _, o := range sums {
		out = append(out, *o)
	}
	slices.SortFunc(out, compareBoots)
	return out
}

// bootSums are by digest, or by the words for what is no image.
type bootSums map[string]*OSBoots

func (s bootSums) get(image string) *OSBoots {
	key := image
	_, digest, named := strings.Cut(image, "@")
	if named {
		key = digest
	}
	if s[key] == nil {
		s[key] = &OSBoots{}
	}
	if named || s[key].Image == "" {
		s[key].Image = image
	}
	return s[key]
}

func (s bootSums) addNode(n OSNodeHistory) {
	if n.Stock != "" {
		s.get(n.Stock).Stock++
	}
	if n.Running != "" {
		s.get(n.Running).Running++
	}
	booted, failed := map[*OSBoots]bool{}, map[*OSBoots]bool{}
	for _, b := range n.Boots {
		o := s.get(b.Image)
		o.spanTime(b.At)
		booted[o] = true
		if b.Result == model.OSFailed {
			failed[o] = true
		}
	}
	for o := range booted {
		o.Booted++
	}
	for o := range failed {
		o.Failed++
	}
}

func (o *OSBoots) spanTime(at time.Time) {
	if o.First == nil || at.Before(*o.First) {
		o.First = &at
	}
	if o.Last == nil || at.After(*o.Last) {
		o.Last = &at
	}
}

func compareBoots(a, b OSBoots) int {
	first := func(o OSBoots) time.Time {
		if o.First == nil || o.Stock > 0 {
			return time.Time{}
		}
		return *o.First
	}
	return cmp.Or(first(a).Compare(first(b)), strings.Compare(a.Image, b.Image))
}

func (v *OSHistory) table(w io.Writer, node bool) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if node {
		v.nodeTable(tw)
	} else {
		v.poolTable(tw)
	}
	return tw.Flush()
}

func (v *OSHistory) nodeTable(w io.Writer) {
	fmt.Fprintln(w, "BOOTED\tIMAGE\tRESULT")
	for _, n := range v.Nodes {
		fmt.Fprintf(w, "-\t%s\tstock\n", cmp.Or(n.Stock, "unknown"))
		for _, b := range n.Boots {
			fmt.Fprintf(w, "%s\t%s\t%s\n", b.At.Format(time.RFC3339), b.Image, cmp.Or(b.Result, "good"))
		}
		if last := len(n.Boots) - 1; n.Running != "" && (last < 0 || !strings.HasSuffix(n.Boots[last].Image, n.Running)) {
			fmt.Fprintf(w, "-\t%s\trunning\n", n.Running)
		}
	}
}

func (v *OSHistory) poolTable(w io.Writer) {
	fmt.Fprintln(w, "POOL\tIMAGE\tBUILD\tFIRST\tLAST\tBOOTED\tRUNNING\tFAILED\tSTOCK")
	when := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return t.Format(time.RFC3339)
	}
	for _, p := range v.Pools {
		for _, i := range p.Images {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", dash(p.Pool), i.Image, dash(i.Build), when(i.First), when(i.Last), i.Booted, i.Running, i.Failed, i.Stock)
		}
	}
}
