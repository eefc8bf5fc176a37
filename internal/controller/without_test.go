package controller_test

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/discovery"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// An installation that leaves areas out has none of their kinds. Its controller becomes ready, starts
// the controllers of the others and no more, asks for nothing that it may not or that does not exist,
// and moves a cluster.
func TestWithout(t *testing.T) {
	for name, names := range map[string][]string{
		"all": areas.Names(), areas.BootImages: {areas.BootImages}, areas.OSImages: {areas.OSImages}, areas.ImageTags: {areas.ImageTags},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := areas.Parse(names)
			if err != nil {
				t.Fatal(err)
			}
			s, audit, log := newSiteWithout(t, out)
			s.startController()
			s.wait("the controller is ready", func() string {
				resp, err := http.Get("http://" + s.health + "/readyz") //nolint:noctx // a test
				if err != nil {
					return err.Error()
				}
				defer func() { _ = resp.Body.Close() }()
				if resp.StatusCode != http.StatusOK {
					return resp.Status
				}
				return ""
			})
			raw := release(t, to)
			s.plugIn("n2", raw)
			s.approve("expected", digest(t, raw))
			s.update("u", digest(t, raw), nil)
			s.waitUpdate("u", "every node is done", phase(v1alpha1.PhaseDone))
			s.stop()
			checkKinds(t, s, out)
			checkStarted(t, log.all(), out)
			checkRequests(t, audit, out)
		})
	}
}

// newSiteWithout is newSite with areas left out, an audit log of the API server, and a controller that
// is not started.
func newSiteWithout(t *testing.T, out areas.Set) (s *site, audit string, log *record) {
	t.Helper()
	dir := t.TempDir()
	audit, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := apitest.StartWithout(t, out, map[string]string{"audit-policy-file": policy, "audit-log-path": audit, "audit-log-mode": "blocking"})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log = &record{}
	s = &site{t: t, cfg: cfg, admin: newClient(t, cfg), agents: map[string]*simAgent{}, without: out, health: free.Addr().String(), log: funcr.NewJSON(log.add, funcr.Options{})}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s.populate(from)
	// The API server acts on new rights a moment after they are written.
	me := newClient(t, apitest.As(cfg, apitest.ControllerUser))
	s.wait("the controller has its rights", func() string {
		r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v1alpha1.GroupVersion.Group, Resource: "clusterupdates", Verb: "list"}}}
		if err := me.Create(t.Context(), r); err != nil || !r.Status.Allowed {
			return "not yet"
		}
		return ""
	})
	return s, audit, log
}

// checkKinds: the API server serves no kind that is left out, and all others.
func checkKinds(t *testing.T, s *site, out areas.Set) {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	served, err := d.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, r := range served.APIResources {
		kinds = append(kinds, r.Kind)
	}
	for _, a := range areas.All {
		for _, k := range a.Kinds {
			if slices.Contains(kinds, k.Name) == out.Has(a.Name) {
				t.Errorf("served kinds: %v", kinds)
			}
		}
	}
}

// checkStarted: the controllers of areas that are left out were not started, those of the others were.
func checkStarted(t *testing.T, log []string, out areas.Set) {
	t.Helper()
	for _, a := range areas.All {
		for _, c := range a.Controllers {
			started := slices.ContainsFunc(log, func(line string) bool {
				return strings.Contains(line, `"msg":"Starting Controller"`) && strings.Contains(line, `"controller":"`+c+`"`)
			})
			if started == out.Has(a.Name) {
				t.Errorf("controller %s of %s started: %t", c, a.Name, started)
			}
		}
	}
	for _, line := range log {
		if strings.Contains(line, "no matches for kind") || strings.Contains(line, "forbidden") {
			t.Errorf("the log says: %s", line)
		}
	}
}

// checkRequests: the controller and the agents asked for nothing that is left out, and nothing was
// denied to the controller.
func checkRequests(t *testing.T, audit string, out areas.Set) {
	t.Helper()
	f, err := os.Open(audit)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	asked := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb             string
			RequestURI       string
			User             struct{ Username string }
			ImpersonatedUser struct{ Username string }
			ObjectRef        struct{ APIGroup, Resource string }
			ResponseStatus   struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		controller := e.ImpersonatedUser.Username == apitest.ControllerUser
		if !controller && !strings.HasPrefix(e.User.Username+e.ImpersonatedUser.Username, "system:node:") {
			continue
		}
		asked++
		if controller && e.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("the controller was denied: %s %s", e.Verb, e.RequestURI)
		}
		if e.ObjectRef.APIGroup == v1alpha1.GroupVersion.Group && out.OmitsResource(e.ObjectRef.Resource) {
			t.Errorf("asked for what is left out: %s %s", e.Verb, e.RequestURI)
		}
	}
	if err := lines.Err(); err != nil || asked < 50 {
		t.Errorf("the audit log has %d requests, %v", asked, err)
	}
}

// record is a log that a test reads.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// all lines up to now: a controller that was stopped may still log.
func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}
