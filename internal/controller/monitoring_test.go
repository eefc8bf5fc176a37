package controller_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// recorder is the registry that /metrics serves, and remembers what refit registers.
type recorder struct {
	prometheus.Registerer
	mu         sync.Mutex
	registered []prometheus.Collector
}

func (r *recorder) Register(c prometheus.Collector) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registered = append(r.registered, c)
	return r.Registerer.Register(c)
}

func (r *recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

var descName = regexp.MustCompile(`fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)"`)

// names of the metrics that refit registered.
func (r *recorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, c := range r.registered {
		descs := make(chan *prometheus.Desc)
		go func() { c.Describe(descs); close(descs) }()
		for d := range descs {
			out = append(out, descName.FindStringSubmatch(d.String())[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// forget lets a later test register the same metrics.
func (r *recorder) forget() {
	for _, c := range r.registered {
		r.Unregister(c)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// account makes a service account with a role, and returns a token of it.
func (s *site) account(name, role string) string {
	s.t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.create(sa)
	if role != "" {
		s.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}}})
	}
	tr := &authenticationv1.TokenRequest{}
	if err := s.admin.SubResource("token").Create(context.Background(), sa, tr); err != nil {
		s.t.Fatal(err)
	}
	return tr.Status.Token
}

// insecure skips the certificate, as the ServiceMonitor does: the controller makes it at its start.
var insecure = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func get(t *testing.T, c *http.Client, address, token string) (code int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// A controller with the rights and the arguments of an installation: it serves its metrics to
// readers with the role, and Prometheus loads the alerts and understands each query of the
// dashboard. Rules and dashboard name only metrics that exist.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	reg := &recorder{Registerer: metrics.Registry}
	port := freePort(t)
	s := &site{t: t, cfg: apitest.Start(t), agents: map[string]*simAgent{}, registry: reg, metrics: installedMetricsAddress(t, port)}
	s.admin = newClient(t, s.cfg)
	s.populate(from)
	one := intstr.FromInt32(1)
	s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &one}})
	s.startController()
	t.Cleanup(func() { s.stop(); reg.forget() })
	raw := release(t, to)
	s.plugIn("n2", raw)
	s.approve("release", digest(t, raw))
	s.update("to-136", digest(t, raw), func(u *v1alpha1.ClusterUpdateSpec) { u.Start = v1alpha1.StartManual })
	s.waitUpdate("to-136", "the gate opens", phase(v1alpha1.PhaseReady))

	reader, stranger := s.account("prometheus", "refit-metrics-reader"), s.account("stranger", "refit-viewer")
	// The controller remembers a refusal for a minute, so the binding must be in force first.
	s.wait("the API server knows the reader", func() string {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:default:prometheus",
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}}}
		if err := s.admin.Create(context.Background(), review); err != nil || !review.Status.Allowed {
			return fmt.Sprintf("%v %+v", err, review.Status)
		}
		return ""
	})
	address := fmt.Sprintf("https://127.0.0.1:%d/metrics", port)
	for name, tc := range map[string]struct {
		token string
		code  int
		says  string
	}{
		"no token":               {"", http.StatusUnauthorized, "a token is missing"},
		"a wrong token":          {"eyJhbGciOiJub25lIn0.e30.", http.StatusUnauthorized, "does not know this token"},
		"a token without rights": {stranger, http.StatusForbidden, "bind the ClusterRole refit-metrics-reader"},
		"a reader":               {reader, http.StatusOK, "refit_nodes{phase="},
	} {
		code, body, err := get(t, insecure, address, tc.token)
		if err != nil || code != tc.code || !strings.Contains(body, tc.says) {
			t.Errorf("%s: %v %d %.300s, want %d %q", name, err, code, body, tc.code, tc.says)
		}
		if code != http.StatusOK && strings.Contains(body, "refit_nodes") {
			t.Errorf("%s reads metrics", name)
		}
	}
	if code, body, err := get(t, http.DefaultClient, "http"+strings.TrimPrefix(address, "https"), reader); err == nil && code == http.StatusOK {
		t.Errorf("metrics in the clear: %s", body)
	}

	var body string
	s.wait("the metrics show the site", func() string {
		var err error
		if _, body, err = get(t, insecure, address, reader); err != nil {
			return err.Error()
		}
		for _, want := range []string{`refit_agents{state="Reporting"} 3`, `refit_agents{state="Missing"} 0`, `refit_bundles{state="Update"} 1`, `refit_pool_nodes{pool="all"} 3`,
			`refit_update_info{phase="Ready",update="to-136",version="1.36.3"} 1`, `refit_update_wait_start_timestamp_seconds{reason="AwaitingStart",update="to-136"}`,
			`refit_gate_checks{check="space",result="Passed",update="to-136"} 1`, `refit_images_pinned 6`, `leader_election_master_status{name=""} 1`} {
			if !strings.Contains(body, "\n"+want) {
				return "no " + want + " in the metrics"
			}
		}
		return ""
	})
	served := reg.names()
	s.checkMetricsPage(served)
	queries := append(dashboardQueries(t), alertQueries(t)...)
	checkNames(t, queries, served, body)
	s.checkPrometheus(port, reader, queries)
}

// installedMetricsAddress is that of the installed controller, at another port.
func installedMetricsAddress(t *testing.T, port int) string {
	t.Helper()
	objects, err := config.Manifests("refit.example/refit:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`-metrics-address=(.*):18742\n`).FindStringSubmatch(string(text))
		if found == nil {
			t.Fatal("the Deployment sets no -metrics-address")
		}
		return fmt.Sprintf("%s:%d", found[1], port)
	}
	t.Fatal("there is no Deployment")
	return ""
}

// checkMetricsPage compares the page with what a running controller registers. The metrics of
// Cluster API's hooks are those of a server that does not run here.
func (s *site) checkMetricsPage(served []string) {
	s.t.Helper()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		s.t.Fatal(err)
	}
	var shown []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(refit_[a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		if !strings.HasPrefix(m[1], "refit_cluster_api_") {
			shown = append(shown, m[1])
		}
	}
	if !slices.Equal(shown, served) {
		s.t.Errorf("docs/reference/metrics.md has %q, the controller %q", shown, served)
	}
}

func alertQueries(t *testing.T) []string {
	t.Helper()
	objects, err := config.Alerts()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, o := range objects {
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Spec struct {
				Groups []struct{ Rules []struct{ Expr string } }
			}
		}
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for _, g := range file.Spec.Groups {
			for _, r := range g.Rules {
				out = append(out, r.Expr)
			}
		}
	}
	return out
}

func dashboardQueries(t *testing.T) []string {
	t.Helper()
	text, err := config.Dashboard()
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			out = append(out, q.Expr)
		}
	}
	if len(out) < 15 {
		t.Fatalf("the dashboard has %d queries", len(out))
	}
	return out
}

var (
	notMetrics = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]|(by|on|without|ignoring) *\([^)]*\)`)
	operators  = []string{"unless", "and", "or", "by", "on"}
	identifier = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\b *\(?`)
)

// metricsOf are the names of the metrics in a query.
func metricsOf(query string) []string {
	var out []string
	for _, word := range identifier.FindAllString(notMetrics.ReplaceAllString(query, " "), -1) {
		if word = strings.TrimSpace(word); !strings.HasSuffix(word, "(") && !slices.Contains(operators, word) {
			out = append(out, word)
		}
	}
	return out
}

func checkNames(t *testing.T, queries, registered []string, body string) {
	t.Helper()
	if got := metricsOf(`time() - max by (a, b) (refit_x{c!~"d|e"}) > 3600 unless on (a) refit_y{f="g"}[1h:5m]`); !slices.Equal(got, []string{"refit_x", "refit_y"}) {
		t.Fatalf("read from a query: %q", got)
	}
	for _, q := range queries {
		names := metricsOf(q)
		if len(names) == 0 {
			t.Errorf("%s names no metric", q)
		}
		for _, name := range names {
			if name != "up" && !slices.Contains(registered, name) && !strings.Contains(body, "\n# TYPE "+name+" ") {
				t.Errorf("%s: the controller has no %s", q, name)
			}
		}
	}
}

// checkPrometheus has a real Prometheus scrape the controller, load the alerts and run the queries.
func (s *site) checkPrometheus(port int, token string, queries []string) {
	t := s.t
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("needs prometheus: make deps installs it")
	}
	dir := t.TempDir()
	own := freePort(t)
	files := map[string]string{"token": token, "prometheus.yml": fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["rules-*.yaml"]
scrape_configs:
- job_name: refit-controller
  scheme: https
  authorization: {credentials_file: %s/token}
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: ["127.0.0.1:%d"]}]
- job_name: without-token
  scheme: https
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: ["127.0.0.1:%d"]}]
`, dir, port, port)}
	objects, err := config.Alerts()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		files["rules-"+o.GetName()+".yaml"] = string(text)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(binary, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", own))
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it has nothing to save
		_ = c.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s", text)
		}
	})
	p := prometheusAPI{t, fmt.Sprintf("http://127.0.0.1:%d/api/v1/", own)}
	s.wait("Prometheus scrapes the controller", func() string { return p.value(`up{job="refit-controller"}`, "1") })
	s.wait("a scrape without a token is refused", func() string { return p.value(`up{job="without-token"}`, "0") })
	s.wait("its nodes are there", func() string { return p.value(`max(refit_agents{state="Reporting"})`, "3") })
	s.wait("the alerts are loaded", func() string { return p.rules(len(alertQueries(t))) })
	for _, q := range queries {
		if status, text := p.query(q); status != http.StatusOK {
			t.Errorf("%s: %d %s", q, status, text)
		}
	}
	if status, _ := p.query("max by ("); status != http.StatusBadRequest {
		t.Errorf("a query that is none: %d", status)
	}
}

type prometheusAPI struct {
	t       *testing.T
	address string
}

func (p prometheusAPI) query(q string) (status int, text string) {
	p.t.Helper()
	code, body, err := get(p.t, http.DefaultClient, p.address+"query?query="+url.QueryEscape(q), "")
	if err != nil {
		return 0, err.Error()
	}
	return code, body
}

// value returns why a query has not the one value, empty if it has.
func (p prometheusAPI) value(q, want string) string {
	_, text := p.query(q)
	var answer struct {
		Data struct{ Result []struct{ Value []any } }
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Data.Result) != 1 || answer.Data.Result[0].Value[1] != want {
		return fmt.Sprintf("%s: want %s, got %s", q, want, text)
	}
	return ""
}

// rules returns why not so many rules are evaluated without an error, empty if they are.
func (p prometheusAPI) rules(want int) string {
	_, text, err := get(p.t, http.DefaultClient, p.address+"rules", "")
	if err != nil {
		return err.Error()
	}
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return err.Error()
	}
	found := 0
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				return fmt.Sprintf("%s is %s: %s", r.Name, r.Health, r.LastError)
			}
			found++
		}
	}
	if found != want {
		return fmt.Sprintf("%d rules, want %d", found, want)
	}
	return ""
}
