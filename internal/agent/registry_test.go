package agent

import (
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/registry"
)

// fetching is a desired state that asks for a fetch.
func fetching(digest string, generation int64) *desired.State {
	return &desired.State{Spec: v1alpha1.NodeUpdateSpec{Bundles: []v1alpha1.ApprovedBundle{{Digest: digest, Fetch: generation}}}}
}

// The controller says who fetches; only an administrator says where.
func TestTheControllerAloneNamesNoRegistry(t *testing.T) {
	t.Parallel()
	var s registrySources
	at := map[string]*v1alpha1.BundleRegistry{}
	where := func(digest string, _ int64) *v1alpha1.BundleRegistry { return at[digest] }
	closed := 0
	open := func(digest string, where *v1alpha1.BundleRegistry) (*peertransfer.Registry, func()) {
		return peertransfer.NewRegistry(peertransfer.RegistryConfig{Bundle: digest, Places: []registry.Place{{Repository: where.Reference}}}), func() { closed++ }
	}
	s.update(fetching("a", 1), where, open)
	if s.get("a") != nil {
		t.Error("a registry that no administrator named")
	}
	at["a"] = &v1alpha1.BundleRegistry{Reference: "r.example/a:v1"}
	s.update(fetching("a", 0), where, open)
	if s.get("a") != nil {
		t.Error("it is another node's task")
	}
	s.update(fetching("a", 1), where, open)
	first := s.get("a")
	if s.update(fetching("a", 1), where, open); first == nil || s.get("a") != first || closed != 0 {
		t.Error("the registry is opened again")
	}
	if s.update(fetching("a", 2), where, open); s.get("a") == first || s.get("a") == nil || closed != 1 {
		t.Error("a change of the Bundle is not followed")
	}
	if s.update(&desired.State{}, where, open); s.get("a") != nil || closed != 2 {
		t.Error("it still fetches")
	}
}

// A failure is reported after a while, stays for the controller to choose another node, and ends.
func TestFailedFetchesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s registrySources
		where := func(string, int64) *v1alpha1.BundleRegistry {
			return &v1alpha1.BundleRegistry{Reference: "r.example/a:v1"}
		}
		open := func(string, *v1alpha1.BundleRegistry) (*peertransfer.Registry, func()) {
			return peertransfer.NewRegistry(peertransfer.RegistryConfig{Places: []registry.Place{{Repository: "r.example/a"}}}), func() {}
		}
		s.update(fetching("a", 1), where, open)
		fails := &model.Blocker{Reason: v1alpha1.ReasonRegistryUnreachable, Message: "connection refused"}
		s.record("a", fails)
		time.Sleep(handOverTime - time.Second)
		if s.record("a", fails); len(s.report()) != 0 {
			t.Error("a short failure is reported")
		}
		s.record("a", nil)
		s.record("a", fails)
		time.Sleep(handOverTime)
		if len(s.report()) != 0 {
			t.Error("an earlier failure counts after a success")
		}
		s.record("a", fails)
		if got := s.report(); len(got) != 1 || got[0] != (v1alpha1.FailedFetch{Bundle: "a", Reason: fails.Reason, Message: fails.Message}) {
			t.Errorf("%+v", got)
		}
		time.Sleep(2 * failedTime)
		if len(s.report()) != 1 {
			t.Error("it is forgotten while it is this node's task")
		}
		s.record("a", fails)
		s.update(&desired.State{}, where, open)
		time.Sleep(failedTime)
		if len(s.report()) != 1 {
			t.Error("the controller would pick this node again at once")
		}
		time.Sleep(time.Second)
		if got := s.report(); len(got) != 0 {
			t.Errorf("it is never asked again: %+v", got)
		}
	})
}

// The authorities of the Bundle are trusted in addition to the system's, and only by the
// transport to its registries.
func TestAuthoritiesOfARegistry(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	l := &bundleLoop{shared: &shared{log: slog.New(slog.DiscardHandler), conf: agentconfig.Config{LocalRegistries: []string{"127.0.0.1"}}}}
	for what, tc := range map[string]struct {
		authorities string
		ok          bool
	}{"none": {"", false}, "its own": {authority, true}, "no certificate": {"x", false}} {
		over := l.registryTransport(tc.authorities)
		resp, err := (&http.Client{Transport: over}).Get(server.URL)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", what, err)
		}
		over.CloseIdleConnections()
	}
}
