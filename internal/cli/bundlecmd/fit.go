package bundlecmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// nodePage is how many Nodes one request lists.
	nodePage = 500
	// kubeletImages is how many images a kubelet reports by default, the largest first.
	kubeletImages = 50
	// maxShownMisfits bounds the lines for people.
	maxShownMisfits = 20
)

// Fit is how a bundle fits the nodes of a cluster, before it is approved.
type Fit struct {
	// Nodes that were compared.
	Nodes int `json:"nodes"`
	// Images of the bundle, and those that all nodes that need them have by digest. Nodes
	// report only their largest images, so there may be more.
	Images      int  `json:"images"`
	ImagesThere int  `json:"imagesOnAllNodes"`
	Incomplete  bool `json:"nodesReportNotAllImages,omitempty"`
	// Misfits are what nodes do not have.
	Misfits []fitMisfit `json:"misfits"`
}

// fitMisfit is what one node does not have.
type fitMisfit struct {
	Node    string `json:"node"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// fitCount counts page by page, so that memory does not grow with what nodes report.
type fitCount struct {
	header  *bundle.Header
	nodes   []updateplan.FitNode
	missing map[string]bool // images that a node needs and does not report
	fit     Fit
	needs   map[pin.Needs][]model.PinSetImage
}

// FitCluster compares a bundle with the nodes. header may be nil: then images are not compared.
func FitCluster(ctx context.Context, c client.Reader, r updateplan.Requires, header *bundle.Header) (*Fit, error) {
	n := fitCount{header: header, missing: map[string]bool{}, needs: map[pin.Needs][]model.PinSetImage{}}
	var list corev1.NodeList
	for {
		if err := c.List(ctx, &list, client.Limit(nodePage), client.Continue(list.Continue)); err != nil {
			return nil, inputs.ListError(err)
		}
		for i := range list.Items {
			if err := n.add(ctx, c, &list.Items[i]); err != nil {
				return nil, err
			}
		}
		if list.Continue == "" {
			break
		}
	}
	n.fit.Nodes, n.fit.Misfits = len(n.nodes), []fitMisfit{}
	for _, b := range updateplan.Fit(r, n.nodes) {
		n.fit.Misfits = append(n.fit.Misfits, fitMisfit{Node: strings.TrimPrefix(b.Object, "Node/"), Reason: b.Reason, Message: text.CleanLine(b.Message), Fix: b.Fix})
	}
	if header != nil && n.fit.Nodes > 0 {
		n.fit.Images = len(header.Metadata.Images)
		for _, img := range header.Metadata.Images {
			if !n.missing[img.Name] {
				n.fit.ImagesThere++
			}
		}
	}
	return &n.fit, nil
}

func (n *fitCount) add(ctx context.Context, c client.Reader, node *corev1.Node) error {
	var nu v1alpha1.NodeUpdate
	controlPlane := rolloutfacts.RunsControlPlane(node, nil)
	if controlPlane { // there are few of these
		err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node.Name}, &nu)
		if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("read NodeUpdate %s: %w", node.Name, err)
		}
	}
	f := rolloutfacts.FitNode(node, &nu)
	n.nodes = append(n.nodes, f)
	n.countImages(node, pin.Needs{Platform: f.Platform, ControlPlane: controlPlane})
	return nil
}

func (n *fitCount) countImages(node *corev1.Node, needs pin.Needs) {
	if n.header == nil {
		return
	}
	if n.needs[needs] == nil {
		n.needs[needs] = pin.FromBundle(n.header, needs).Images
	}
	there := map[string]bool{}
	for _, img := range node.Status.Images {
		for _, name := range img.Names {
			there[name] = true
		}
	}
	n.fit.Incomplete = n.fit.Incomplete || len(node.Status.Images) >= kubeletImages
	for _, img := range n.needs[needs] {
		if !there[pin.Repository(img.Name)+"@"+img.Digest] {
			n.missing[img.Name] = true
		}
	}
}

// Print writes the comparison for people.
func (f *Fit) Print(w io.Writer) {
	if f.Images > 0 {
		more := ""
		if f.Incomplete {
			more = "; nodes report only their largest images, so there may be more"
		}
		fmt.Fprintf(w, "already on all nodes that need them: %d of %s%s\n", f.ImagesThere, text.Count(f.Images, "image"), more)
	}
	if len(f.Misfits) == 0 {
		fmt.Fprintf(w, "platforms, runtimes and versions of %s fit\n", text.Count(f.Nodes, "node"))
		return
	}
	for _, m := range f.Misfits[:min(len(f.Misfits), maxShownMisfits)] {
		fmt.Fprintf(w, "%s: %s\n  fix: %s\n", m.Reason, m.Message, m.Fix)
	}
	if left := len(f.Misfits) - maxShownMisfits; left > 0 {
		fmt.Fprintf(w, "and %d more; refit bundle inspect --cluster -o json lists all\n", left)
	}
}

// Err refuses a bundle that does not fit; nil if it fits.
func (f *Fit) Err(digest string) error {
	if len(f.Misfits) == 0 {
		return nil
	}
	var nodes []string
	for _, m := range f.Misfits {
		nodes = append(nodes, m.Node)
	}
	nodes = slices.Compact(nodes)
	return console.WithExit(console.ExitBlocked, fmt.Errorf("bundle %s does not fit %d of %s: %s. Follow the fixes above; refit approve takes it only with --allow-mismatch",
		text.ShortDigest(digest), len(nodes), text.Count(f.Nodes, "node"), text.FirstOf(nodes, 3, ", ")))
}

// requiresOfStatus is what is known of a bundle that is no file here.
func requiresOfStatus(s *v1alpha1.BundleStatus) updateplan.Requires {
	r := updateplan.Requires{Kubernetes: s.KubernetesVersion, Platforms: s.Platforms}
	for _, c := range s.Constraints {
		r.Constraints = append(r.Constraints, bundle.Constraint{Name: c.Name, Min: c.Min, Max: c.Max})
	}
	return r
}

// FitBundle compares a bundle with the nodes: by its header if it is a file here, else by the
// status of its Bundle. It is nil if nothing is known of the bundle.
func FitBundle(ctx context.Context, c client.Reader, h *bundle.Header, digest string) (*Fit, error) {
	var list v1alpha1.BundleList
	if err := c.List(ctx, &list); err != nil {
		return nil, inputs.ListError(err)
	}
	via := approvedVersions(list.Items)
	if h != nil {
		r := updateplan.RequiresOf(h.Metadata)
		r.Via = via
		return FitCluster(ctx, c, r, h)
	}
	for i := range list.Items {
		if s := &list.Items[i].Status; s.Digest == digest {
			r := requiresOfStatus(s)
			r.Via = via
			return FitCluster(ctx, c, r, nil)
		}
	}
	return nil, nil
}

// approvedVersions are the Kubernetes versions of approved bundles, which an update may hop to.
func approvedVersions(all []v1alpha1.Bundle) []string {
	var out []string
	for i := range all {
		if b := &all[i]; b.Status.KubernetesVersion != "" && apimeta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionApproved) {
			out = append(out, b.Status.KubernetesVersion)
		}
	}
	return out
}
