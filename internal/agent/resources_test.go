package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// oneNode is all that the controller's fetcher lists.
type oneNode struct {
	client.Client
	node *testNode
}

func (o oneNode) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	list := l.(*v1alpha1.NodeUpdateList)
	o.node.api.mu.Lock()
	defer o.node.api.mu.Unlock()
	if s := o.node.api.status; s != nil {
		list.Items = []v1alpha1.NodeUpdate{{ObjectMeta: metav1.ObjectMeta{Name: o.node.name}, Status: *s.DeepCopy()}}
	}
	return nil
}

// controllerReader is the controller's reader of bundles, which sees one node. It stops with the
// test.
func controllerReader(t *testing.T, n *testNode) *bundlefiles.Reader {
	t.Helper()
	key, _, err := peerapi.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	id, err := peerapi.NewIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	headers := bundlefiles.NewHeaders(id)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = headers.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-stopped })
	return &bundlefiles.Reader{Client: oneNode{node: n}, Headers: headers, Identity: id}
}

// allowController makes the controller a peer of the node.
func allowController(n *testNode, r *bundlefiles.Reader) {
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		s.Peers = append(s.Peers, v1alpha1.Peer{Node: "controller", Address: "127.0.0.1:1", PublicKey: r.Identity.PublicKey()})
	})
}

const wantedImages = `{"apiVersion":"refit.dev/boot-images/v1","images":[]}`

// manyChunks is a bundle with resources of several chunks, the last not full, and a
// file for the nodes.
func manyChunks() bundletest.Spec {
	spec := bundletest.Tiny()
	spec.Payloads = append(spec.Payloads,
		bundletest.Payload{Name: bundle.PayloadResources, Content: bytes.Repeat([]byte("# manifests\n"), 200)},
		bundletest.Payload{Name: "file.motd", Content: []byte("hello\n")},
		bundletest.Payload{Name: bundle.PayloadBootImages, Content: []byte(wantedImages)},
		bundletest.Payload{Name: bundle.PrefixBootImage + "vsphere.amd64.ova", Content: []byte("a disk")})
	return spec
}

// The controller reads the resources of a bundle from an agent that holds it, over
// the agents' own wire; an agent that does not know the controller sends nothing.
func TestTheControllerReadsResourcesFromAnAgent(t *testing.T) {
	path, h := mediumWith(t, manyChunks(), 1)
	n := newTestNode(t, "n1", 17966, path)
	f, ctx := controllerReader(t, n), t.Context()
	const most = 1 << 20

	if p, err := f.File(ctx, h.Digest, bundle.PayloadResources, most); p != nil || !errors.Is(err, bundlefiles.ErrNotYet) {
		t.Fatalf("before any node has the bundle: %v, %v", p, err)
	}
	approve(t, h, pin.FromBundle(h, pin.Needs{Platform: platform(), ControlPlane: true}), n)
	n.reported("everything held", held)
	allowController(n, f)
	var p *bundlefiles.File
	var err error
	for range 300 { // a failed header is retried after some seconds
		if p, err = f.File(ctx, h.Digest, bundle.PayloadResources, most); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil || p.Bundle.Name != "tiny" || !bytes.Equal(p.Data, bytes.Repeat([]byte("# manifests\n"), 200)) {
		t.Fatalf("%v, %+v", err, p)
	}

	// The stream of boot images comes the same way; a boot image itself is kept by no
	// node, and can be read from the stick only.
	stream, err := f.File(ctx, h.Digest, bundle.PayloadBootImages, most)
	if err != nil || string(stream.Data) != wantedImages {
		t.Fatalf("%v, %+v", err, stream)
	}
	if disk := h.PayloadByName(bundle.PrefixBootImage+"vsphere.amd64.ova", ""); disk == nil || n.agent.library.Shelf(h.Digest).HasBlob(disk.Blob) {
		t.Errorf("a node keeps a boot image: %+v", disk)
	}
	if p, err := f.File(ctx, h.Digest, "nothing", most); p != nil || err != nil {
		t.Errorf("what the bundle does not have: %v %v", p, err)
	}
	if _, err := f.File(ctx, h.Digest, bundle.PayloadBootImages, 3); err == nil || !strings.Contains(err.Error(), "more than 3") {
		t.Errorf("what is too large: %v", err)
	}

	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Peers = nil })
	for range 100 {
		again := &bundlefiles.Reader{Client: oneNode{node: n}, Headers: f.Headers, Identity: f.Identity}
		if _, err = again.File(ctx, h.Digest, bundle.PayloadResources, most); err != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err == nil {
		t.Error("the agent still answers the controller, which is no peer any more")
	}
}

// A file for a NodeConfig is found by name and digest in whichever bundle is held.
func TestAFileOfAnyHeldBundle(t *testing.T) {
	path, h := mediumWith(t, manyChunks(), 1)
	n := newTestNode(t, "n1", 17967, path)
	motd := model.DigestOf([]byte("hello\n"))
	if _, err := n.agent.payloads.findPinned("file.motd", motd); !errors.Is(err, updaters.ErrNoPayload) {
		t.Fatalf("before anything is held: %v", err)
	}
	approve(t, h, everything(h), n)
	n.reported("everything held", held)
	p, err := n.agent.payloads.findPinned("file.motd", motd)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(p.Path); err != nil || string(b) != "hello\n" {
		t.Errorf("%q %v", b, err)
	}
	for _, other := range [][2]string{{"file.motd", "sha256:" + strings.Repeat("0", 64)}, {"file.other", motd}} {
		if _, err := n.agent.payloads.findPinned(other[0], other[1]); !errors.Is(err, updaters.ErrNoPayload) {
			t.Errorf("%v: %v", other, err)
		}
	}
}
