package statuspage_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/controller/statuspage"
)

// site is a real API server, and the page with the rights it is installed with.
type site struct {
	t     *testing.T
	cfg   *rest.Config
	admin client.Client
	url   string
}

func connect(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newSite has the rights of an installed controller if they are granted.
func newSite(t *testing.T, granted bool) *site {
	t.Helper()
	cfg := apitest.Start(t)
	s := &site{t: t, cfg: cfg, admin: connect(t, cfg)}
	rights, err := config.StatusPage()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rights {
		if err := s.admin.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	user := apitest.ControllerUser
	if !granted {
		user = "system:serviceaccount:refit-system:other"
	}
	own := connect(t, apitest.As(cfg, user, "system:serviceaccounts", "system:serviceaccounts:refit-system"))
	server := httptest.NewServer(statuspage.New(own, logr.Discard(), statuspage.Options{Address: "127.0.0.1:0"}).Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.url = server.URL
	return s
}

// token makes a service account with a role, and returns a token of it.
func (s *site) token(name, role string) string {
	s.t.Helper()
	ctx := context.Background()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := s.admin.Create(ctx, sa); err != nil {
		s.t.Fatal(err)
	}
	if role != "" {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}}}
		if err := s.admin.Create(ctx, b); err != nil {
			s.t.Fatal(err)
		}
	}
	tr := &authenticationv1.TokenRequest{}
	if err := s.admin.SubResource("token").Create(ctx, sa, tr); err != nil {
		s.t.Fatal(err)
	}
	return tr.Status.Token
}

func (s *site) request(path, token string, basic bool) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	switch {
	case basic:
		r.SetBasicAuth("anyone", token)
	case token != "":
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer
}

func (s *site) get(path, token string, basic bool) (code int, body string) {
	s.t.Helper()
	answer := s.request(path, token, basic)
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if answer.StatusCode == http.StatusUnauthorized && answer.Header.Get("WWW-Authenticate") == "" {
		s.t.Errorf("%s: a browser gets no question for a token", path)
	}
	return answer.StatusCode, string(raw)
}

// A real API server decides who sees what.
func TestAccess(t *testing.T) {
	s := newSite(t, true)
	viewer, technician, stranger := s.token("viewer", "refit-status-viewer"), s.token("technician", "refit-status-technician"), s.token("plain", "")
	ofKinds := s.token("kinds", "refit-viewer")
	for name, tc := range map[string]struct {
		token              string
		basic              bool
		status, technician int
		says               string
	}{
		"no token":                      {"", false, 401, 401, "a token is missing"},
		"a wrong token":                 {"eyJhbGciOiJub25lIn0.e30.", false, 401, 401, "does not know this token"},
		"a token that is too long":      {strings.Repeat("x", 9<<10), false, 401, 401, "more than 8192 bytes"},
		"a token without rights":        {stranger, false, 403, 403, "refit-status-viewer"},
		"rights to kinds only":          {ofKinds, false, 403, 403, "system:serviceaccount:default:kinds may not get /refit/"},
		"a technician":                  {technician, false, 403, 200, ""},
		"a viewer":                      {viewer, false, 200, 200, ""},
		"a viewer, token as password":   {viewer, true, 200, 200, ""},
		"a wrong password of a browser": {"x", true, 401, 401, "does not know this token"},
	} {
		for path, want := range map[string]int{"/": tc.status, "/api/status": tc.status, "/receipt": tc.status, "/technician": tc.technician} {
			for range 2 { // the second answer is the remembered one
				code, body := s.get(path, tc.token, tc.basic)
				if code != want {
					t.Errorf("%s, %s: %d %s, want %d", name, path, code, body, want)
				}
				if code != http.StatusOK && (!strings.Contains(body, tc.says) && tc.says != "" || strings.Contains(body, "<")) {
					t.Errorf("%s, %s: %s, want %q", name, path, body, tc.says)
				}
			}
		}
	}
	for _, path := range []string{"/events", "/technician/events"} {
		if code, _ := s.get(path, stranger, false); code != http.StatusForbidden {
			t.Errorf("%s without rights: %d", path, code)
		}
	}
	if code, _ := s.get("/events", technician, false); code != http.StatusForbidden {
		t.Errorf("a technician follows all events: %d", code)
	}
	s.checkReceipt(viewer)
	if code, body := s.get("/style.css", "", false); code != http.StatusOK || !strings.Contains(body, "--bg") {
		t.Errorf("style sheet: %d", code)
	}
}

// checkReceipt: with the rights of an installed controller the page names the cluster and the update.
func (s *site) checkReceipt(viewer string) {
	s.t.Helper()
	ctx := context.Background()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "release"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: "sha256:" + strings.Repeat("a", 64)}}
	if err := s.admin.Create(ctx, u); err != nil {
		s.t.Fatal(err)
	}
	u.Status.Phase, u.Status.Version = v1alpha1.PhaseDone, "1.36.3"
	controller := connect(s.t, apitest.As(s.cfg, apitest.ControllerUser, "system:serviceaccounts", "system:serviceaccounts:refit-system"))
	if err := controller.Status().Update(ctx, u); err != nil {
		s.t.Fatal(err)
	}
	var cluster corev1.Namespace
	if err := s.admin.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &cluster); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // a page counts for a second
	code, body := s.get("/receipt", viewer, false)
	for _, want := range []string{"<svg", "\ncluster " + string(cluster.UID) + "\n", "\nupdate release\n", "\nphase Done\n"} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			s.t.Errorf("/receipt: %d, no %q in %.3000s", code, want, body)
		}
	}
}

// Without the rights to check tokens the page shows nothing.
func TestAccessWithoutRightsToCheck(t *testing.T) {
	s := newSite(t, false)
	code, body := s.get("/", s.token("viewer", "refit-status-viewer"), false)
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "which refit install permits") {
		t.Errorf("%d %s", code, body)
	}
}

// Many wrong tokens do not load the API server.
func TestWrongTokensAreLimited(t *testing.T) {
	s := newSite(t, true)
	limited := false
	for i := 0; i < 5000 && !limited; i++ {
		code, body := s.get("/", fmt.Sprintf("wrong-%d", i), false)
		limited = code == http.StatusTooManyRequests && strings.Contains(body, "try again")
		if !limited && code != http.StatusUnauthorized {
			t.Fatal(code, body)
		}
	}
	if !limited {
		t.Skip("this machine checks fewer than 20 tokens a second")
	}
}

// A browser that follows the events hears of a bundle that appears.
func TestEvents(t *testing.T) {
	s := newSite(t, true)
	token := s.token("viewer", "refit-status-viewer")
	answer := s.request("/events", token, false)
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(answer.Status, answer.Header)
	}
	lines := bufio.NewScanner(answer.Body)
	timer := time.AfterFunc(5*time.Minute, func() { _ = answer.Body.Close() })
	defer timer.Stop()
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return ""
	}
	if first := next(); !strings.Contains(first, `"phase":"Idle"`) || !strings.Contains(first, `"colour":"green"`) {
		t.Error(first)
	}
	b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "release"}, Spec: v1alpha1.BundleSpec{Digest: "sha256:" + strings.Repeat("a", 64)}}
	if err := s.admin.Create(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if second := next(); !strings.Contains(second, "release") {
		t.Error(second)
	}
	code, body := s.get("/api/status", token, false)
	if code != http.StatusOK || !strings.Contains(body, `"kind": "Status"`) || !strings.Contains(body, "release") {
		t.Errorf("%d %s", code, body)
	}
}
