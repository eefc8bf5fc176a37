package gatefacts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/contents"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// readOSImages are the images that nodes of the plan boot, how many of them hold theirs, and
// whether they can boot them: the reconciler of OSImages has counted and read that. byPool are
// those nodes, in has their facts.
func readOSImages(ctx context.Context, c client.Reader, pools []v1alpha1.UpdatePool, byPool map[string][]string, in *gate.Input) ([]gate.OSImage, error) {
	if len(byPool) == 0 {
		return nil, nil
	}
	var images v1alpha1.OSImageList
	if err := c.List(ctx, &images); err != nil {
		return nil, fmt.Errorf("list OSImages: %w", err)
	}
	var out []gate.OSImage
	for i := range images.Items {
		for _, p := range images.Items[i].Status.Pools {
			nodes := byPool[p.Name]
			if len(nodes) == 0 || p.Image == "" {
				continue
			}
			o := gate.OSImage{Pool: p.Name, Image: p.Image, Nodes: len(nodes), Ready: len(nodes) - nodesWithoutImage(p, nodes), Reason: p.PrepullReason, Message: p.PrepullMessage}
			if o.Ready < o.Nodes && o.Message == "" {
				o.Message = "nothing is known of it yet"
			}
			facts := poolFacts(in, nodes)
			facts.NeedsFallback = requiresFallback(pools, p.Name)
			if err := addFindings(ctx, c, &p, &o, facts); err != nil {
				return nil, err
			}
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b gate.OSImage) int { return strings.Compare(a.Pool, b.Pool) })
	return out, nil
}

// readOSBuilds are the images that pools of the plan should have and that cannot be built. A pool
// that is pinned to a build waits for none.
func readOSBuilds(ctx context.Context, c client.Reader, w Snapshot) ([]gate.OSBuild, error) {
	pools := w.poolsThatBuild()
	if len(pools) == 0 {
		return nil, nil
	}
	var images v1alpha1.OSImageList
	if err := c.List(ctx, &images); err != nil {
		return nil, fmt.Errorf("list OSImages: %w", err)
	}
	var out []gate.OSBuild
	for i := range images.Items {
		o := &images.Items[i]
		for _, p := range o.Status.Pools {
			if pools[p.Name] != o.Name || p.State != string(osimage.Stuck) {
				continue
			}
			b := gate.OSBuild{Pool: p.Name, OSImage: o.Name, Image: p.Image, Message: p.Message, Reason: notReady(o)}
			if failed, err := buildFailed(ctx, c, p.Wanted); err != nil {
				return nil, err
			} else if failed {
				b.Build = p.Wanted
			}
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b gate.OSBuild) int { return strings.Compare(a.Pool, b.Pool) })
	return out, nil
}

// notReady is the reason word of an OSImage that is not Ready.
func notReady(o *v1alpha1.OSImage) string {
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason
	}
	return ""
}

// poolsThatBuild are the OSImages of pools of the plan that follow them.
func (w Snapshot) poolsThatBuild() map[string]string {
	pools := map[string]string{}
	for i := range w.Pools {
		if p := &w.Pools[i]; w.Moves.pools[p.Name] && p.Spec.OSImage != "" && p.Spec.OSBuild == "" {
			pools[p.Name] = p.Spec.OSImage
		}
	}
	return pools
}

func buildFailed(ctx context.Context, c client.Reader, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	var b v1alpha1.OSBuild
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &b); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return b.Status.Phase == v1alpha1.BuildFailed, nil
}

func requiresFallback(pools []v1alpha1.UpdatePool, name string) bool {
	return slices.ContainsFunc(pools, func(p v1alpha1.UpdatePool) bool {
		return p.Name == name && p.Spec.BootFallback == v1alpha1.BootFallbackRequire
	})
}

// addFindings compares what is in an image with the nodes that boot it.
func addFindings(ctx context.Context, c client.Reader, p *v1alpha1.OSImagePool, o *gate.OSImage, nodes osimage.PoolFacts) error {
	if p.Facts == "" {
		o.Unread, o.Reading = p.FactsMessage, p.FactsMessage == ""
		addFound(o, osimage.Fallback(nodes))
		return nil
	}
	var stored v1alpha1.Content
	if err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: p.Facts}, &stored); err != nil {
		return fmt.Errorf("facts of OS image %s: %w", p.Image, err)
	}
	digest, facts, err := contents.OpenFacts([]byte(stored.Data))
	if _, want, _ := strings.Cut(p.Image, "@"); err == nil && digest != want {
		err = fmt.Errorf("they are of %s", digest)
	}
	if err != nil {
		return fmt.Errorf("facts of OS image %s: %w", p.Image, err)
	}
	addFound(o, osimage.Admit(facts, nodes))
	return nil
}

func addFound(o *gate.OSImage, found []osimage.Finding) {
	for _, f := range found {
		o.Findings = append(o.Findings, gate.OSImageFinding{Blocker: f.Blocker, Warning: f.Warning})
	}
}

// poolFacts are the facts of nodes for the image that they boot: of several values the one that
// is hardest to meet.
func poolFacts(in *gate.Input, names []string) osimage.PoolFacts {
	f := osimage.PoolFacts{APIServer: in.TargetKubernetes}
	if f.APIServer == "" {
		f.APIServer = oldestControlPlane(in.Nodes)
	}
	for _, n := range in.Nodes {
		if slices.Contains(names, n.Name) {
			addNode(&f, n)
		}
	}
	return f
}

// oldestControlPlane is the oldest version of a kubelet next to an API server: kubeadm and its
// like keep both at one version. It is empty if no node of the cluster has an API server.
func oldestControlPlane(nodes []*gate.Node) (version string) {
	for _, n := range nodes {
		if n.ControlPlane && (version == "" || componentversion.LessKubernetes(n.Host.Kubelet, version)) {
			version = n.Host.Kubelet
		}
	}
	return version
}

// Drivers of hosts that boot no kernel of an OS image.
const (
	driverSysext  = "sysext"
	driverPackage = "package"
)

func addNode(f *osimage.PoolFacts, n *gate.Node) {
	f.Platforms = addNew(f.Platforms, n.Host.Platform)
	f.Drivers = addNew(f.Drivers, n.Host.Driver)
	f.Kernels = addNew(f.Kernels, n.Host.Kernel)
	if n.Host.Driver != driverSysext && n.Host.Driver != driverPackage { // those boot no other kernel
		f.BootFallback = append(f.BootFallback, osimage.NodeFallback{Node: n.Name, Known: n.Host.BootFallbackKnown, Missing: n.Host.BootFallback})
		if n.Host.Enforcing {
			f.Enforcing = addNew(f.Enforcing, n.Host.Driver)
		}
		if !n.Host.KeepsAgent {
			f.LoseAgent = append(f.LoseAgent, n.Name)
		}
	}
	if n.Host.Policy == model.SignaturePolicyRejects || n.Host.Policy == model.SignaturePolicyBypassed && f.Policy != model.SignaturePolicyRejects {
		f.Policy = n.Host.Policy
	}
	for _, fs := range n.FileSystems {
		switch fs.Name {
		case pin.BootFS:
			f.BootFree = least(f.BootFree, fs.Free)
		case pin.SysrootFS:
			f.SysrootFree = least(f.SysrootFree, fs.Free)
		}
	}
}

func addNew(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// least of two numbers of bytes, of which 0 is unknown: a full file system counts as one byte.
func least(known, free int64) int64 {
	free = max(1, free)
	if known == 0 {
		return free
	}
	return min(known, free)
}

// hostOf is what a node and its agent report of its OS.
func hostOf(n *corev1.Node, nu *v1alpha1.NodeUpdate) gate.Host {
	i := n.Status.NodeInfo
	h := gate.Host{Kernel: i.KernelVersion, Kubelet: i.KubeletVersion}
	if i.Architecture != "" {
		h.Platform = "linux/" + i.Architecture
	}
	if nu != nil && nu.Status.Observed != nil {
		fields := nu.Status.Observed.Fields
		h.Driver, h.Policy = fields[model.FieldOSDriver], fields[model.FieldOSPolicy]
		h.Enforcing = fields[model.FieldOSSELinux] == model.ValueEnforcing
		h.KeepsAgent = fields[model.FieldOSAgent] == model.ValueCarried
		v := fields[model.FieldOSBootFallback]
		if h.BootFallbackKnown = v != ""; v != "" && v != model.ValueComplete {
			h.BootFallback = strings.Split(v, ",")
		}
	}
	return h
}

// nodesWithoutImage counts the nodes that have not prepulled the image: all of them before
// the first count.
func nodesWithoutImage(p v1alpha1.OSImagePool, nodes []string) int {
	var held, all int
	if _, err := fmt.Sscanf(p.Prepulled, "%d/%d", &held, &all); err != nil {
		return len(nodes)
	}
	if all-held > v1alpha1.MaxMissingNodes { // more than are named
		return min(len(nodes), all-held)
	}
	n := 0
	for _, node := range nodes {
		if slices.Contains(p.Missing, node) {
			n++
		}
	}
	return n
}

// addArguments adds the dangerous kernel arguments that a node gets.
func (m *Moves) addArguments(np *model.NodePlan) {
	for _, a := range model.NewArguments(np) {
		if x := (gate.Argument{Pool: np.Pool, Argument: a, Why: model.DangerousArgument(a)}); x.Why != "" && !slices.Contains(m.arguments, x) {
			m.arguments = append(m.arguments, x)
		}
	}
}
