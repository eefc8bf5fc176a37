package agent

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// pushTiny puts a small bundle into a registry.
func pushTiny(t *testing.T, s *registrytest.Server, logins []byte) (reference string, h *bundle.Header) {
	t.Helper()
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	u, _, err := bundlereader.Upload(f, s.Ref("site/bundles"), "v1")
	if err != nil {
		t.Fatal(err)
	}
	var keys *registry.Keys
	if logins != nil {
		if keys, err = registry.ParseKeys(logins); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := registry.NewWriter(keys, nil).Push(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	s.Requests()
	return s.Ref("site/bundles:v1"), h
}

func loginsFor(address string) []byte {
	auth := base64.StdEncoding.EncodeToString([]byte(registrytest.User + ":" + registrytest.Password))
	return fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, address, auth)
}

// registryNode is a node without a medium that may ask registries on loopback.
func registryNode(t *testing.T, name string, port int, reference string, h *bundle.Header) *testNode {
	t.Helper()
	n := newTestNode(t, name, port)
	n.stop()
	n.conf.LocalRegistries = []string{"127.0.0.1"}
	n.conf.RegistryAuth = filepath.Join(filepath.Dir(n.conf.StateDir), "logins")
	b := approvedBundle(h.Digest)
	b.Generation, b.Spec.Registry = 1, &v1alpha1.BundleRegistry{Reference: reference}
	n.api.people.bundles = []v1alpha1.Bundle{b}
	n.start()
	return n
}

// setFetch makes the fetch of the bundle a node's task, as the controller does, or not.
func (n *testNode) setFetch(generation int64) {
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		for i := range s.Bundles {
			s.Bundles[i].Fetch = generation
		}
	})
}

// One node fetches a bundle from a registry that asks for a login, the others take it from that
// node and from each other. A node without the login says so, and another takes over.
func TestOneNodeFetchesFromARegistryForAll(t *testing.T) {
	server := registrytest.StartWithLogin(t)
	reference, h := pushTiny(t, server, loginsFor(server.Addr))
	a := registryNode(t, "n1", 17981, reference, h)
	b := registryNode(t, "n2", 17982, reference, h)
	c := registryNode(t, "n3", 17983, reference, h)
	introduce(a, b, c)
	approve(t, h, everything(h), a, b, c)
	a.setFetch(1)
	waits := b.reported("it waits for the node that fetches", func(s *v1alpha1.NodeUpdateStatus) bool {
		return strings.Contains(s.Message, "one node fetches it from "+reference)
	})
	if _, reason := condition(waits, v1alpha1.ConditionReconciling); reason != v1alpha1.ReasonBundleNotFound {
		t.Errorf("reason %s", reason)
	}
	refused := a.reported("it has no login", func(s *v1alpha1.NodeUpdateStatus) bool { return len(s.FailedFetches) == 1 })
	if f := refused.FailedFetches[0]; f.Bundle != h.Digest || f.Reason != v1alpha1.ReasonRegistryUnauthorized || !strings.Contains(f.Message, server.Addr) {
		t.Errorf("%+v", f)
	}
	if status, reason := condition(refused, v1alpha1.ConditionStalled); status != "True" || reason != v1alpha1.ReasonRegistryUnauthorized {
		t.Errorf("stalled %s: %s", status, reason)
	}
	if err := os.WriteFile(b.conf.RegistryAuth, loginsFor(server.Addr), 0o600); err != nil {
		t.Fatal(err)
	}
	server.Requests()
	a.setFetch(0)
	b.setFetch(1)
	for _, n := range []*testNode{a, b, c} {
		s := n.reported("everything held", held)
		if fetched := s.Pins.BytesFromRegistry > 0; fetched != (n == b) || s.Pins.BytesFromRegistry+s.Pins.BytesFromPeers != s.Pins.BytesTotal || s.Pins.BytesFromMedia != 0 {
			t.Errorf("%s: %d bytes from the registry, %d from peers, %d in all", n.name, s.Pins.BytesFromRegistry, s.Pins.BytesFromPeers, s.Pins.BytesTotal)
		}
	}
	asked, requests := map[string]bool{}, 0
	for _, r := range server.Requests() {
		if r.Method == http.MethodGet && strings.Contains(r.Path, "/blobs/") && (r.Status == "206" || r.Status == "200") {
			asked[r.Path] = true
			requests++
		}
	}
	// Streams may share the chunks of a blob, more of them on a busy machine; no node asks for each chunk.
	if blobs := len(h.Metadata.Blobs); len(asked) == 0 || len(asked) > blobs+1 || requests > 3*blobs+3 {
		t.Errorf("%d requests for %d blobs and the header, the bundle has %d blobs", requests, len(asked)-1, blobs)
	}
	if s := a.reported("the failure stays for a while", func(*v1alpha1.NodeUpdateStatus) bool { return true }); len(s.FailedFetches) != 1 {
		t.Errorf("the controller would pick it again: %+v", s.FailedFetches)
	}
}

// A registry that is down while nodes wait is asked again, and the bundle comes when it is up.
func TestARegistryThatComesBack(t *testing.T) {
	server := registrytest.Start(t)
	reference, h := pushTiny(t, server, nil)
	server.Stop()
	a := registryNode(t, "n1", 17984, reference, h)
	approve(t, h, everything(h), a)
	a.setFetch(1)
	s := a.reported("it is unreachable", func(s *v1alpha1.NodeUpdateStatus) bool {
		_, reason := condition(s, v1alpha1.ConditionReconciling)
		return reason == v1alpha1.ReasonRegistryUnreachable
	})
	if !strings.Contains(s.Message, "next try at") {
		t.Errorf("message %q", s.Message)
	}
	server.Resume()
	b := a.api.people.bundles[0]
	b.Generation = 2
	a.api.mu.Lock()
	a.api.people.bundles = []v1alpha1.Bundle{b}
	a.api.mu.Unlock()
	a.setFetch(2) // the object was changed: the node asks at once
	a.reported("everything held", held)
}

// The agent is killed at every point between the registry and the pin, and continues.
func TestKilledWhileItFetchesFromARegistry(t *testing.T) {
	server := registrytest.Start(t)
	reference, h := pushTiny(t, server, nil)
	for _, point := range []string{failpoint.HeaderFetched, failpoint.HeaderStored, failpoint.ChunkWritten + ":3", failpoint.PeerFetch + ":4", failpoint.BlobSync + ":2", failpoint.BlobRename + ":2"} {
		t.Run(point, func(t *testing.T) {
			f := files{t.TempDir()}
			api := newFakeAPI()
			nu := &v1alpha1.NodeUpdate{}
			nu.Generation = 1
			nu.Spec.Bundles = []v1alpha1.ApprovedBundle{{Digest: h.Digest, Fetch: 1}}
			nu.Spec.Pins = api.content(t, v1alpha1.ContentPins, everything(h))
			for _, err := range []error{
				os.MkdirAll(f.path("state"), 0o700), f.write("nodeupdate", nu), f.write(nu.Spec.Pins, api.contents[nu.Spec.Pins]),
				f.write("registry", v1alpha1.BundleRegistry{Reference: reference}), os.WriteFile(f.path("state/failpoint"), []byte(point), 0o600),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := start(t, f); !wasKilled(err) {
				t.Fatalf("the point was not reached: %v", err)
			}
			if err := start(t, f); err != nil {
				t.Fatalf("the second process: %v", err)
			}
			var s v1alpha1.NodeUpdateStatus
			f.read("status", &s)
			if !held(&s) || s.Pins.BytesDone != s.Pins.BytesTotal {
				t.Fatalf("held %v, %+v", held(&s), s.Pins)
			}
		})
	}
}
