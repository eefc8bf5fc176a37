package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// TestPageInABrowser shows the status page in Chromium while a cluster is updated, at five
// moments: both views, on a desktop and on a phone, light and dark, with and without scripts.
// axe-core checks each. results/page.json has what was found, bin/page the pictures.
func TestPageInABrowser(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("an update of a cluster of its own takes minutes: make e2e")
	}
	axe, err := os.ReadFile("../../bin/npm/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: make e2e-deps installs it", err)
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatalf("%v: make e2e-deps installs it", err)
	}
	pictures, err := filepath.Abs("../../bin/page")
	must(t, err)
	must(t, os.RemoveAll(pictures))
	must(t, os.MkdirAll(pictures, 0o755))

	s := start(t, "page", 3)
	ctx := t.Context()
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	dev, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, dev))
	p := &pageProxy{scenario: s, token: showPage(t, s), axe: axe}
	p.start(t)

	var seen []*pageMoment
	look := func(name string, is func(v explain.View) bool) {
		t.Helper()
		eventually(t, 10*time.Minute, "the page at the moment "+name, func() (bool, string) {
			v, err := p.state(ctx)
			if err != nil || !is(v) {
				return false, fmt.Sprintf("%s, %v", v.Headline, err)
			}
			return true, ""
		})
		m := &pageMoment{Name: name}
		p.look(t, m, pictures)
		seen = append(seen, m)
	}
	phase := func(want ...string) func(explain.View) bool {
		return func(v explain.View) bool { return slices.Contains(want, v.Phase) }
	}
	keepResult(t, "page.json", func() any { return map[string]any{"moments": seen} })
	look("found", func(v explain.View) bool { return strings.Contains(v.Headline, "waits for approval") })
	must(t, s.Approve(ctx, b))
	digest, err := s.Prepare(ctx, b)
	must(t, err)
	look("prepared", phase(v1alpha1.PhaseReady))
	startUpdate(t, s)
	look("updating", phase(v1alpha1.PhaseUpdating))
	look("half", func(v explain.View) bool { return v.NodesDone > 0 && v.NodesDone < v.NodesTotal })
	finished(t, s, b, digest)
	look("done", phase(v1alpha1.PhaseDone))
	for _, m := range seen {
		m.check(t)
	}
	if len(p.foreign) > 0 {
		t.Errorf("the browser asked other servers: %s", p.foreign)
	}
}

// showPage switches the page on as docs/how-to/status-page.md says, and returns a token for it.
func showPage(t *testing.T, s *scenario.Scenario) (token string) {
	t.Helper()
	ctx := t.Context()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "refit-status-viewer"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/refit/status", "/refit/technician"}, Verbs: []string{"get"}}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plant"}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "plant-status"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}}
	for _, o := range []client.Object{role, account, binding} {
		must(t, s.Client.Create(ctx, o))
	}
	request := &authenticationv1.TokenRequest{}
	must(t, s.Client.SubResource("token").Create(ctx, account, request))
	d := &appsv1.Deployment{}
	must(t, s.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}, d))
	c := &d.Spec.Template.Spec.Containers[0]
	c.Args = append(c.Args, "-status-address="+pageAddress)
	must(t, s.Client.Update(ctx, d))
	return request.Status.Token
}

const pageAddress = "127.0.0.1:18745"

// pageProxy gives a browser on this machine the page of the lab's controller, with a token.
type pageProxy struct {
	scenario *scenario.Scenario
	token    string
	axe      []byte
	base     string
	browser  *httptest.Server

	mu      sync.Mutex
	results chan []byte
	foreign []string
}

// axeRun runs axe-core and sends what it found.
const axeRun = `axe.run(document, {resultTypes: ['violations']}).then((r) =>
  fetch('/axe/result', {method: 'POST', body: JSON.stringify(r.violations.map((v) => ({id: v.id, impact: v.impact, help: v.help, html: v.nodes.slice(0, 3).map((n) => n.html)})))}));`

func (p *pageProxy) start(t *testing.T) {
	t.Helper()
	p.results = make(chan []byte, 1)
	target := &url.URL{Scheme: "http", Host: pageAddress}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+p.token)
			r.Out.Header.Del("Accept-Encoding")
		},
		Transport:      &http.Transport{DialContext: p.dial},
		ModifyResponse: p.addAxe,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("/axe/axe.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write(p.axe)
	})
	mux.HandleFunc("/axe/run.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = io.WriteString(w, axeRun)
	})
	mux.HandleFunc("/axe/result", func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err == nil {
			select {
			case p.results <- b:
			default:
			}
		}
	})
	page := httptest.NewServer(mux)
	t.Cleanup(page.Close)
	p.base = page.URL
	// Requests of the browser to other servers come here.
	p.browser = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if !ownOfChromium(host) {
			p.foreign = append(p.foreign, r.Method+" "+r.Host)
		}
		http.Error(w, "nothing is here", http.StatusForbidden)
	}))
	t.Cleanup(p.browser.Close)
}

// ownOfChromium reports whether the browser itself asks a host, for updates and the like.
func ownOfChromium(host string) bool {
	return slices.ContainsFunc([]string{".google.com", ".googleapis.com", ".gvt1.com", ".gstatic.com"}, func(s string) bool { return strings.HasSuffix(host, s) })
}

// dial reaches the node of the controller that answers.
func (p *pageProxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var last error
	for _, n := range p.scenario.Lab.Nodes() {
		c, err := p.scenario.Lab.Dial(ctx, n, network, address)
		if err == nil {
			return c, nil
		}
		last = err
	}
	return nil, last
}

// addAxe adds axe-core to a page that is asked for with it. Its policy refuses foreign scripts.
func (p *pageProxy) addAxe(r *http.Response) error {
	if r.Request.URL.RawQuery != "axe" {
		return nil
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Header.Del("Content-Security-Policy")
	r.Header.Del("Content-Length")
	r.ContentLength = -1
	b = bytes.Replace(b, []byte("</body>"), []byte(`<script src="/axe/axe.js"></script><script src="/axe/run.js"></script></body>`), 1)
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// state is the JSON of the page.
func (p *pageProxy) state(ctx context.Context) (v explain.View, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/api/status", nil)
	if err != nil {
		return v, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return v, fmt.Errorf("%s", resp.Status)
	}
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// pageMoment is what one moment showed.
type pageMoment struct {
	Name     string   `json:"name"`
	Looks    []looked `json:"looks"`
	Pictures []string `json:"pictures"`
}

type looked struct {
	View string `json:"view"`
	// Violations of rules of accessibility, as axe-core reports them.
	Violations []struct {
		ID     string   `json:"id"`
		Impact string   `json:"impact"`
		Help   string   `json:"help"`
		HTML   []string `json:"html"`
	} `json:"violations"`
	// Console lines of the browser.
	Console []string `json:"console"`
	// TextWithoutScripts are the bytes of text that the page has with scripts off.
	TextWithoutScripts int `json:"textBytesWithoutScripts"`
}

func (m *pageMoment) check(t *testing.T) {
	t.Helper()
	for _, l := range m.Looks {
		for _, v := range l.Violations {
			if v.Impact == "serious" || v.Impact == "critical" {
				t.Errorf("%s, %s: %s (%s): %s", m.Name, l.View, v.Help, v.Impact, v.HTML)
			}
		}
		if len(l.Console) > 0 {
			t.Errorf("%s, %s: the browser's console says %s", m.Name, l.View, l.Console)
		}
		if l.TextWithoutScripts < 40 {
			t.Errorf("%s, %s: %d bytes of text without scripts", m.Name, l.View, l.TextWithoutScripts)
		}
	}
}

// look takes pictures of both views and checks them.
func (p *pageProxy) look(t *testing.T, m *pageMoment, pictures string) {
	t.Helper()
	for _, view := range []string{"/", "/technician"} {
		l := looked{View: view}
		name := "administrator"
		if view != "/" {
			name = "technician"
		}
		for _, c := range []struct{ screen, size, scheme string }{{"desktop", "1280,900", "light"}, {"desktop", "1280,900", "dark"}, {"phone", "390,844", "light"}, {"phone", "390,844", "dark"}} {
			file := filepath.Join(pictures, fmt.Sprintf("%s-%s-%s-%s.png", m.Name, name, c.screen, c.scheme))
			scheme := map[string]string{"dark": "0", "light": "1"}[c.scheme]
			_, stderr := p.chromium(t, "--window-size="+c.size, "--blink-settings=preferredColorScheme="+scheme, "--enable-logging=stderr", "--screenshot="+file, p.base+view)
			l.Console = append(l.Console, consoleLines(stderr)...)
			st, err := os.Stat(file)
			if err != nil || st.Size() < 5000 {
				t.Errorf("no picture: %v\n%s", err, stderr)
			}
			m.Pictures = append(m.Pictures, filepath.Base(file))
		}
		file := filepath.Join(pictures, fmt.Sprintf("%s-%s-without-scripts.png", m.Name, name))
		_, stderr := p.chromium(t, "--window-size=1280,900", "--blink-settings=scriptEnabled=false", "--enable-logging=stderr", "--screenshot="+file, p.base+view)
		l.Console = append(l.Console, consoleLines(stderr)...)
		m.Pictures = append(m.Pictures, filepath.Base(file))
		l.TextWithoutScripts = p.textOf(t, view)
		if err := json.Unmarshal(p.violations(t, view), &l.Violations); err != nil {
			t.Error(err)
		}
		m.Looks = append(m.Looks, l)
	}
}

func (p *pageProxy) flags(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync", "--disable-background-networking", "--disable-component-update",
		"--user-data-dir=" + t.TempDir(), "--proxy-server=" + p.browser.URL, "--hide-scrollbars"}, more...)
}

// chromium runs the browser until it ends by itself.
func (p *pageProxy) chromium(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chromium", p.flags(t, args...)...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if failed := cmd.Run(); failed != nil {
		t.Fatalf("chromium %s: %v\n%s", args, failed, err.String())
	}
	return out.String(), err.String()
}

// violations runs axe-core in the page.
func (p *pageProxy) violations(t *testing.T, view string) []byte {
	t.Helper()
	select {
	case <-p.results:
	default:
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chromium", p.flags(t, "--remote-debugging-port=0", p.base+view+"?axe")...)
	must(t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	select {
	case b := <-p.results:
		return b
	case <-ctx.Done():
		t.Fatalf("axe-core did not answer for %s", view)
		return nil
	}
}

// consoleLines are what scripts and the page's policy wrote to the console.
func consoleLines(stderr string) (out []string) {
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "CONSOLE") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// textOf counts the bytes of text in a page as the server sends it.
func (p *pageProxy) textOf(t *testing.T, view string) (n int) {
	t.Helper()
	resp, err := http.Get(p.base + view)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	_, body, _ := strings.Cut(string(b), "<body")
	for part := range strings.SplitSeq(body, "<") {
		if _, text, ok := strings.Cut(part, ">"); ok {
			n += len(strings.TrimSpace(text))
		}
	}
	return n
}
