package statuspage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/render"
)

const attack = `"><script>alert(1)</script><img src=x onerror=alert(1)><a href="javascript:alert(1)">'`

// hostile is a cluster whose every text is an attack.
func hostile() *objects {
	o := moments()["3-updating"]
	for i := range o.nodes {
		o.nodes[i].Name = fmt.Sprintf("%d%s", i, attack)
		o.nodes[i].Status.NodeInfo.KubeletVersion = attack
		o.nodes[i].Annotations = map[string]string{v1alpha1.AnnotationHold: attack}
		o.nus[i].Name, o.nus[i].Status.Message, o.nus[i].Status.Phase = o.nodes[i].Name, attack, attack
		o.nus[i].Status.Run = &v1alpha1.NodeRunStatus{Step: attack}
		o.nus[i].Status.Media = []v1alpha1.Medium{{Device: attack, Name: attack, Version: attack, State: attack, Message: attack, SignedBy: []string{attack}}}
	}
	ready := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: attack, Message: attack}}
	b := &o.bundles[0]
	b.Name, b.Status.Version, b.Status.Digest, b.Status.SignedBy, b.Status.Loaded = attack, attack, attack, []string{attack}, attack
	b.Status.Conditions = append(b.Status.Conditions, ready...)
	u := &o.updates[0]
	u.Name, u.Status.Version, u.Status.PlanDigest, u.Status.Progress, u.Status.Current = attack, attack, attack, attack, []string{attack}
	u.Status.Blockers = []v1alpha1.Blocker{{Reason: attack, Message: attack, Fix: "refit " + attack, Object: attack}}
	u.Status.Warnings = u.Status.Blockers
	u.Status.AcceptedRisks = []v1alpha1.RiskRecord{{Check: attack, Reason: attack, State: attack}}
	u.Status.Phases = []v1alpha1.PhaseTime{{Phase: attack}}
	o.pools[0].Name, o.pools[0].Status.Window = attack, attack
	o.tracks[0].Name, o.tracks[0].Spec.Repository, o.tracks[0].Status.Conditions = attack, attack, ready
	o.tracks[0].Status.Approved = &v1alpha1.TrackedImage{Tag: attack, Digest: attack}
	o.sources[0].Name, o.sources[0].Status.State, o.sources[0].Status.Conditions = attack, attack, ready
	o.sources[0].Status.Wanted = &v1alpha1.BootImage{OS: attack}
	return o
}

// checkMarkup fails if a page has code or loads something from elsewhere.
func checkMarkup(t *testing.T, page string) (elements int) {
	t.Helper()
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if err := z.Err(); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			return elements
		case html.StartTagToken, html.SelfClosingTagToken:
			elements++
			checkElement(t, z.Token())
		}
	}
}

func checkElement(t *testing.T, e html.Token) {
	t.Helper()
	src := ""
	for _, a := range e.Attr {
		switch {
		case a.Key == "src" || a.Key == "href":
			src = a.Val
			if strings.Contains(a.Val, ":") || strings.HasPrefix(a.Val, "/") {
				t.Errorf("<%s %s=%q> leads elsewhere", e.Data, a.Key, a.Val)
			}
		case strings.HasPrefix(a.Key, "on") || a.Key == "style":
			t.Errorf("<%s %s=%q> is refused by the content security policy", e.Data, a.Key, a.Val)
		}
	}
	switch e.Data {
	case "script":
		if src != "refit.js" {
			t.Errorf("a script of %q", src)
		}
	case "img", "iframe", "style", "form", "object":
		t.Errorf("<%s> does not belong to the page", e.Data)
	}
}

func TestHostileTextsAreEscaped(t *testing.T) {
	h := serverOf(hostile()).Handler()
	for _, path := range []string{"/", "/technician", "/?pool=" + strings.NewReplacer(`"`, "%22", " ", "%20", "<", "%3C", ">", "%3E").Replace(attack) + "&state=%22%3E%3Cscript%3E&page=-9"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost:18745"
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatal(path, w.Code, w.Body)
		}
		if n := checkMarkup(t, w.Body.String()); n < 8 {
			t.Errorf("%s has only %d elements: the test reads the wrong page", path, n)
		}
	}
	if st := stateOfObjects(t, hostile()); st.page(filter{page: 1}).Nodes.Total != 4 || st.mark() == stateOfObjects(t, plant(3)).mark() {
		t.Error("the hostile cluster is not what the page shows")
	}
}

// The markup check itself refuses what it must refuse.
func TestMarkupCheckRefuses(t *testing.T) {
	if !strings.Contains(attack, "onerror") {
		t.Fatal("the attack has no handler")
	}
	for _, bad := range []string{`<img src=x>`, `<script>1</script>`, `<a href="https://example.com">`, `<p onclick=x>`, `<p style="x">`, `<script src=other.js></script>`} {
		probe := &testing.T{}
		checkMarkup(probe, bad)
		if !probe.Failed() {
			t.Errorf("%s passes the check", bad)
		}
	}
}

// Without scripts the page loads itself again, and every link works.
func TestNoScript(t *testing.T) {
	for name, o := range moments() {
		st := stateOfObjects(t, o)
		var page, technician bytes.Buffer
		if err := errors.Join(renderPage(&page, st, filter{page: 1}), renderTechnician(&technician, st)); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{page.String(), technician.String()} {
			checkMarkup(t, text)
			if !strings.Contains(text, `<noscript><meta http-equiv="refresh" content="15"></noscript>`) {
				t.Errorf("%s does not load itself again without scripts", name)
			}
		}
		if !strings.Contains(page.String(), `href="technician"`) {
			t.Errorf("%s has no link to the technician's view", name)
		}
	}
}

func TestHeaders(t *testing.T) {
	h := serverOf(plant(1)).Handler()
	for path, want := range map[string]int{"/": 200, "/technician": 200, "/api/status": 200, "/style.css": 200, "/refit.js": 200, "/favicon.svg": 200, "/none": 404, "/../etc/passwd": 404} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path, r.Host = path, "127.0.0.1:18745"
		h.ServeHTTP(w, r)
		if w.Code != want && w.Code != http.StatusTemporaryRedirect && w.Code != http.StatusMovedPermanently {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
		head := w.Header()
		if csp := head.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'self'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %q", path, csp)
		}
		if head.Get("X-Frame-Options") != "DENY" || head.Get("X-Content-Type-Options") != "nosniff" || head.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, head)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/", nil)
		r.Host = "localhost"
		if h.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d, the page is read only", method, w.Code)
		}
	}
}

// A name of another site that leads to this machine does not show the page.
func TestOtherHostNamesAreRefused(t *testing.T) {
	h := serverOf(plant(1)).Handler()
	for host, want := range map[string]int{"localhost:18745": 200, "[::1]:18745": 200, "127.0.0.1": 200, "evil.example:18745": 403, "": 403, "10.0.0.1": 403, "localhost.evil.example": 403} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
}

// The JSON has the bytes of refit status -o json.
func TestJSONIsThatOfTheCommand(t *testing.T) {
	for name, o := range moments() {
		st := stateOfObjects(t, o)
		var got, want bytes.Buffer
		if err := writeStatusJSON(&got, st); err != nil {
			t.Fatal(err)
		}
		v := explain.Make(rolloutfacts.ViewFacts(st.at, o.nodes, o.nus, o.bundles, o.updates))
		if err := render.Status(&want, render.JSON, v); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%s: %s\nwant %s", name, &got, &want)
		}
	}
}

func TestAnUnreadableStateIsNoHalfPage(t *testing.T) {
	o := plant(1)
	o.err = errors.New("unavailable")
	h := serverOf(o).Handler()
	for _, path := range []string{"/", "/technician", "/api/status"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost"
		if h.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "try again") || strings.Contains(w.Body.String(), "<") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

const pageLimit = 500 << 10

// big is a cluster of 30,000 nodes, whose texts are as long as the API lets them be.
func big() *objects {
	o := plant(29999)
	o.approved(500, 4)
	long := strings.Repeat(`"`, 1024)
	st := o.updating(v1alpha1.PhaseUpdating, 0)
	for range 20 {
		st.Blockers = append(st.Blockers, v1alpha1.Blocker{Reason: "DisruptionBudget", Message: long, Fix: long, Object: long})
	}
	st.Warnings, st.BlockerCount = st.Blockers, 30000
	for i := range o.nus {
		o.nus[i].Status.Message = long
		o.nus[i].Status.Media = []v1alpha1.Medium{{Device: long[:256], State: "Found", Message: long, Name: long[:253]}}
	}
	for i := range 300 {
		b := o.bundles[0]
		b.Name = fmt.Sprintf("b%d", i)
		o.bundles = append(o.bundles, b)
		p := o.pools[0]
		p.Name = fmt.Sprintf("p%d", i)
		o.pools = append(o.pools, p)
		u := o.updates[0]
		u.Name, u.Status.Phase = fmt.Sprintf("u%d", i), v1alpha1.PhaseDone
		o.updates = append(o.updates, u)
	}
	return o
}

func TestPageOfThirtyThousandNodesIsSmall(t *testing.T) {
	o := big()
	o.nus[17000].Status.Phase = nodeFailed
	st := stateOfObjects(t, o)
	for _, f := range []filter{{page: 1}, {page: 2}, {page: 300}, {page: 1, pool: "default"}, {page: 1 << 40, state: "Copying"}} {
		var b bytes.Buffer
		if err := renderPage(&b, st, f); err != nil {
			t.Fatal(err)
		}
		t.Logf("page %+v has %d bytes", f, b.Len())
		if b.Len() > pageLimit {
			t.Errorf("page %+v has %d bytes, limit %d", f, b.Len(), pageLimit)
		}
	}
	seen := map[string]bool{}
	for n := 1; n <= 300; n++ {
		for _, r := range st.nodeList(filter{page: n}).Rows {
			seen[r.Name] = true
		}
	}
	if len(seen) != 30000 {
		t.Errorf("the pages show %d nodes", len(seen))
	}
	if first := st.nodeList(filter{page: 1}).Rows[0]; first.Name != "worker-17000" || first.Tone != toneBad {
		t.Errorf("the failed node is not the first: %+v", first)
	}
}

func BenchmarkPageOfThirtyThousandNodes(b *testing.B) {
	s := serverOf(big())
	for b.Loop() {
		st, err := s.read(context.Background(), start)
		if err == nil {
			err = renderPage(io.Discard, st, filter{page: 1})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		o    Options
		want string
	}{
		"off":                        {Options{}, ""},
		"loopback":                   {Options{Address: "127.0.0.1:18745"}, ""},
		"loopback of IPv6":           {Options{Address: "[::1]:18745", WithoutToken: true}, ""},
		"TLS":                        {Options{Address: ":18745", Certificate: "c", Key: "k"}, ""},
		"no address":                 {Options{WithoutToken: true}, "need -status-address"},
		"no port":                    {Options{Address: "127.0.0.1"}, "is not HOST:PORT"},
		"no key":                     {Options{Address: ":18745", Certificate: "c"}, "is missing"},
		"all addresses without TLS":  {Options{Address: ":18745"}, "in the clear"},
		"another address":            {Options{Address: "10.0.0.1:18745"}, "in the clear"},
		"everyone, also without TLS": {Options{Address: "0.0.0.0:18745", WithoutToken: true}, "to everyone"},
		"everyone with TLS":          {Options{Address: ":18745", WithoutToken: true, Certificate: "c", Key: "k"}, "to everyone"},
	} {
		err := tc.o.Validate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// A missing certificate ends the server with the file's name; a busy port names the flag.
func TestStartRefuses(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := serverOf(plant(1))
	s.options.Certificate, s.options.Key = "/none/tls.crt", "/none/tls.key"
	if err := s.Start(ctx); err == nil || !strings.Contains(err.Error(), "/none/tls.crt") {
		t.Error(err)
	}
	s = serverOf(plant(1))
	s.options.Address = "127.0.0.1:99999"
	if err := s.Start(ctx); err == nil || !strings.Contains(err.Error(), "-status-address") {
		t.Error(err)
	}
}
