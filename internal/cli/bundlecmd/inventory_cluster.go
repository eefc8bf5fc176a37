package bundlecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/text"
)

// clusterInventory lists the bundles from which every node has pinned images.
func clusterInventory(ctx context.Context, r client.Reader, note io.Writer) ([]bundledelta.InventoryBundle, error) {
	var nodes corev1.NodeList
	var updates v1alpha1.NodeUpdateList
	var bundles v1alpha1.BundleList
	for _, list := range []client.ObjectList{&updates, &bundles, &nodes} {
		if err := r.List(ctx, list); err != nil {
			return nil, inputs.ListError(err)
		}
	}
	byName := map[string]*v1alpha1.NodeUpdate{}
	for i := range updates.Items {
		if u := &updates.Items[i]; u.Namespace == v1alpha1.NodesNamespace {
			byName[u.Name] = u
		}
	}
	s := siteInventory{lists: map[string]*model.PinSet{}, found: map[string]*bundledelta.InventoryBundle{}, nodes: map[string]int{}}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		why, err := s.addNode(ctx, r, byName[name])
		if err != nil {
			return nil, err
		}
		if why != "" {
			s.unready = append(s.unready, fmt.Sprintf("%s (%s)", name, why))
		}
	}
	if len(s.unready) > 0 {
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("%d of %s not ready, so the inventory would be wrong: %s. Run the command again when refit status says that every node is ready, or name bundles with --bundle",
			len(s.unready), text.Count(len(nodes.Items), "node"), text.FirstOf(s.unready, 5, "; ")))
	}
	return s.complete(len(nodes.Items), bundles.Items, note)
}

// siteInventory collects what the pin lists of nodes say of bundles.
type siteInventory struct {
	// lists are the pin lists by name.
	lists map[string]*model.PinSet
	// found are the bundles, and nodes how many nodes have each of them, by digest.
	found map[string]*bundledelta.InventoryBundle
	nodes map[string]int
	// unready are nodes that have not pinned everything, with the reason.
	unready []string
}

// addNode adds the pin list of a node, or says why the node is not ready.
func (s *siteInventory) addNode(ctx context.Context, r client.Reader, u *v1alpha1.NodeUpdate) (why string, err error) {
	if u == nil || u.Status.Pins == nil || u.Spec.Pins == "" || u.Status.Pins.Content != u.Spec.Pins {
		return "its agent has not reported what it pinned", nil
	}
	list, err := s.list(ctx, r, u.Spec.Pins)
	if err != nil {
		return "", err
	}
	p := u.Status.Pins
	bundled, _ := list.CountImages()
	if int(p.ImagesReady) < bundled || int(p.ImagesPinned) < bundled || int(p.PayloadsReady) < len(list.Payloads) {
		return fmt.Sprintf("it has pinned %d of %s and stored %d of %s", min(p.ImagesReady, p.ImagesPinned), text.Count(bundled, "image"), p.PayloadsReady, text.Count(len(list.Payloads), "payload")), nil
	}
	for d := range s.addList(list) {
		s.nodes[d]++
	}
	return "", nil
}

// list reads a pin list once. Its name is a hash of its data.
func (s *siteInventory) list(ctx context.Context, r client.Reader, name string) (*model.PinSet, error) {
	if l := s.lists[name]; l != nil {
		return l, nil
	}
	var c v1alpha1.Content
	err := r.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c)
	if apierrors.IsNotFound(err) {
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("the pin list %s of a node is not there: run the command again in a minute", name))
	}
	if err != nil {
		return nil, inputs.ListError(err)
	}
	l := &model.PinSet{}
	if c.Type != v1alpha1.ContentPins || v1alpha1.ContentName(c.Type, c.Data) != name || json.Unmarshal([]byte(c.Data), l) != nil {
		return nil, console.WithExit(console.ExitVerification, fmt.Errorf("the pin list %s is damaged: its name is not the hash of its data. Check who changes Contents in %s", name, v1alpha1.NodesNamespace))
	}
	s.lists[name] = l
	return l, nil
}

// addList adds the images and payloads of a list to the bundles that they come from. An image that
// the site assembled is not in a bundle, but its base is.
func (s *siteInventory) addList(l *model.PinSet) map[string]bool {
	from := map[string]bool{}
	of := func(digest string) *bundledelta.InventoryBundle {
		from[digest] = true
		if s.found[digest] == nil {
			s.found[digest] = &bundledelta.InventoryBundle{Digest: digest}
		}
		return s.found[digest]
	}
	for _, i := range l.Images {
		d := i.Digest
		if i.Overlay != "" {
			d = i.Base
		}
		if i.Bundle != "" && bundle.ValidDigest(d) {
			b := of(i.Bundle)
			b.Images = append(b.Images, bundledelta.InventoryDigest(d))
		}
	}
	for _, p := range l.Payloads {
		if p.Bundle != "" && bundle.ValidDigest(p.Digest) {
			b := of(p.Bundle)
			b.Payloads = append(b.Payloads, bundledelta.InventoryDigest(p.Digest))
		}
	}
	return from
}

// complete returns the bundles that every node has, with their names. It notes the others.
func (s *siteInventory) complete(nodes int, objects []v1alpha1.Bundle, note io.Writer) ([]bundledelta.InventoryBundle, error) {
	described := map[string]*v1alpha1.Bundle{}
	for i := range objects {
		if b := &objects[i]; b.Status.Name != "" {
			described[b.Status.Digest] = b
		}
	}
	var out []bundledelta.InventoryBundle
	for _, digest := range slices.Sorted(maps.Keys(s.found)) {
		b, o := s.found[digest], described[digest]
		switch {
		case s.nodes[digest] < nodes:
			fmt.Fprintf(note, "bundle %s is not in the inventory: %d of %s have images of it\n", digest, s.nodes[digest], text.Count(nodes, "node"))
			continue
		case o == nil:
			fmt.Fprintf(note, "bundle %s is not in the inventory: no Bundle object has its name and version\n", digest)
			continue
		}
		b.Name, b.Version, b.Platforms = o.Status.Name, o.Status.Version, slices.Clone(o.Status.Platforms)
		slices.Sort(b.Platforms)
		b.Images, b.Payloads = sortedSet(b.Images), sortedSet(b.Payloads)
		out = append(out, *b)
	}
	if len(out) == 0 {
		return nil, console.WithExit(console.ExitBlocked, errors.New("no bundle is on every node, so there is nothing to leave out: name bundles that the site has with --bundle, or make a full bundle"))
	}
	return out, nil
}

func sortedSet(list []bundledelta.InventoryDigest) []bundledelta.InventoryDigest {
	slices.Sort(list)
	return slices.Compact(list)
}
