package statusreport

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/model"
)

func get(h http.Handler, method, host, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	r.Host = host
	h.ServeHTTP(w, r)
	return w
}

func currently(l *Local) func() NodeStatus {
	return func() NodeStatus { return MakeNodeStatus(l, AgentRunning, clock) }
}

func TestPageAnswersTwoPathsOnly(t *testing.T) {
	h := pageHandler([]string{"worker-1.plant"}, currently(moment("Ready", nil)))
	for _, c := range []struct {
		method, host, path string
		code               int
	}{
		{"GET", "10.0.0.5:18746", "/technician", 200}, {"HEAD", "10.0.0.5", "/technician", 200}, {"GET", "[fd00::1]:18746", "/api/status", 200},
		{"GET", "localhost:18746", "/technician", 200}, {"GET", "Worker-1.Plant", "/technician", 200},
		{"GET", "10.0.0.5", "/", 404}, {"GET", "10.0.0.5", "/technician/", 404}, {"GET", "10.0.0.5", "/api/status/x", 404}, {"GET", "10.0.0.5", "/debug/pprof/", 404},
		{"POST", "10.0.0.5", "/technician", 405}, {"DELETE", "10.0.0.5", "/api/status", 405},
		{"GET", "evil.example:18746", "/technician", 403}, {"GET", "", "/api/status", 403},
	} {
		w := get(h, c.method, c.host, c.path)
		if w.Code != c.code {
			t.Errorf("%s %s of %q: %d, want %d", c.method, c.path, c.host, w.Code, c.code)
		}
		for name, part := range map[string]string{"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"} {
			if !strings.Contains(w.Header().Get(name), part) {
				t.Errorf("%s %s: %s is %q", c.method, c.path, name, w.Header().Get(name))
			}
		}
	}
	w := get(h, "GET", "localhost", "/technician")
	if !strings.Contains(w.Body.String(), `http-equiv="refresh" content="10"`) || !strings.Contains(w.Body.String(), "This machine is prepared") {
		t.Error(w.Body)
	}
}

// Everyone who reaches the page sees the sentence; names, messages and addresses stay on the node.
func TestPageShowsNoMessage(t *testing.T) {
	const secret = "registry.example/secret-image"
	l := moment("Failed", func(l *Local) { l.run(v1alpha1.RunFailed, "kubelet", 2, v1alpha1.ReasonStepFailed, secret) })
	l.APIError = secret
	l.Blockers = []model.Blocker{{Reason: v1alpha1.ReasonNoSource, Message: secret, Fix: secret, Object: secret}}
	l.Status.Message, l.Status.Agent = secret, &v1alpha1.AgentInfo{Address: secret}
	l.Status.Problems = []v1alpha1.NodeProblem{{Reason: secret, Message: secret, Fix: secret}}
	h := pageHandler(nil, currently(l))
	for _, path := range []string{"/technician", "/api/status"} {
		if w := get(h, "GET", "localhost", path); strings.Contains(w.Body.String(), secret) || w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	var n NodeStatus
	if err := json.Unmarshal(get(h, "GET", "localhost", "/api/status").Body.Bytes(), &n); err != nil {
		t.Fatal(err)
	}
	if n.Kind != "NodeStatus" || n.Colour != "red" || n.Step != "kubelet" || len(n.Waiting) != 2 || n.Waiting[1].Reason != v1alpha1.ReasonNoSource {
		t.Errorf("%+v", n)
	}
}

// Hostile texts make no element, and the page loads nothing.
func TestPageEscapes(t *testing.T) {
	const attack = `"><script>alert(1)</script><img src=x onerror=alert(1)>'&`
	l := moment("Updating", func(l *Local) { l.run(v1alpha1.RunRunning, attack, 2, attack, attack) })
	l.Node, l.Permitted.Name = attack, attack
	page := get(pageHandler(nil, currently(l)), "GET", "localhost", "/technician").Body.String()
	if strings.Count(page, "&lt;script&gt;") < 3 {
		t.Errorf("the attack is not on the page, so nothing was tested:\n%s", page)
	}
	allowed := map[string]bool{"html": true, "head": true, "meta": true, "title": true, "style": true, "body": true, "main": true, "div": true, "h1": true, "progress": true, "p": true}
	seen := 0
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if !errors.Is(z.Err(), io.EOF) || seen < 12 {
				t.Errorf("%d elements, %v", seen, z.Err())
			}
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			seen++
			e := z.Token()
			if !allowed[e.Data] {
				t.Errorf("<%s> is on the page", e.Data)
			}
			for _, a := range e.Attr {
				if a.Key == "src" || a.Key == "href" || a.Key == "style" || strings.HasPrefix(a.Key, "on") {
					t.Errorf("<%s %s=%q>", e.Data, a.Key, a.Val)
				}
			}
		}
	}
}

func TestPageAddress(t *testing.T) {
	for in, want := range map[string]string{"10.0.0.5": "10.0.0.5:18746", "10.0.0.5:8088": "10.0.0.5:8088", "fd00::1": "[fd00::1]:18746", "[fd00::1]": "[fd00::1]:18746", "[fd00::1]:8088": "[fd00::1]:8088", ":8088": ":8088", "node-1": "node-1:18746"} {
		if got, err := PageAddress(in); err != nil || got != want {
			t.Errorf("%s: %s %v", in, got, err)
		}
	}
	for in, why := range map[string]string{"10.0.0.5:0": "1 to 65535", "10.0.0.5:http": "1 to 65535", "10.0.0.5:70000": "1 to 65535", "10.0.0.5:80": "the system", "10.0.0.5:10250": "kubelet", "a:b:c": "neither", "[]": "neither"} {
		if got, err := PageAddress(in); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %s %v", in, got, err)
		}
	}
}

// A client that sends nothing, and more clients than connections, keep no other client out for
// longer than the timeout.
func TestPageSurvivesSlowClients(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServePage(ctx, l, nil, currently(moment("Ready", nil))) }()
	for range maxPageConnections + 4 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /technician HTTP/1.1\r\n"); err != nil { // and never the rest
			t.Fatal(err)
		}
	}
	client := http.Client{Timeout: 4 * pageTimeout}
	r, err := client.Get("http://" + l.Addr().String() + "/technician")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK || !r.Close {
		t.Errorf("%d, closed: %v", r.StatusCode, r.Close)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server goes on after the end of the agent")
	}
}

func TestIssue(t *testing.T) {
	dir := t.TempDir()
	i := &Issue{Path: filepath.Join(dir, "etc", "issue.d", "refit.issue"), Reload: filepath.Join(dir, "agetty.reload")}
	written := func() string {
		b, err := os.ReadFile(i.Path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	n := MakeNodeStatus(moment("Copying", func(l *Local) {
		l.copied(410)
		l.medium(v1alpha1.MediumCopying)
	}), AgentRunning, clock)
	if err := i.Update(n); err != nil {
		t.Fatal(err)
	}
	const want = "refit (blue, since 2026-11-26 13:40:00 UTC): This machine is preparing the update: please wait.\nThe USB stick may be pulled: no.\n"
	if got := written(); got != want {
		t.Errorf("%q", got)
	}
	if _, err := os.Stat(i.Reload); err != nil {
		t.Error("the consoles are not asked to show it:", err)
	}
	if err := os.WriteFile(i.Path, []byte("mark"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Percent, n.ReadAt = 42, clock.Add(time.Minute)
	if err := i.Update(n); err != nil || written() != "mark" {
		t.Errorf("it was written without a change: %v", err)
	}
	n.Sentence = `a\n b` + "\x1b[2J\nnext"
	if err := i.Update(n); err != nil {
		t.Fatal(err)
	}
	if got := written(); !strings.Contains(got, `a\\n b`) || strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 2 {
		t.Errorf("agetty would expand %q", got)
	}
	i.Remove()
	if _, err := os.Stat(i.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it stays: %v", err)
	}
	blocked := &Issue{Path: filepath.Join(i.Reload, "refit.issue")} // its directory is a file
	if err := blocked.Update(n); err == nil {
		t.Error("a file that cannot be written is no error")
	}
}

// On a full disk the old sentence stays whole, and the new one is written when there is room.
func TestIssueOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts file systems")
	}
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		i := &Issue{Path: f.Path("issue.d", "refit.issue")}
		if err := i.Update(MakeNodeStatus(moment("Copying", nil), AgentRunning, clock)); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(i.Path)
		if err != nil {
			t.Fatal(err)
		}
		f.Fill()
		failed := MakeNodeStatus(moment("Failed", nil), AgentRunning, clock)
		if err := i.Update(failed); err == nil {
			t.Error("a full disk is no error")
		}
		if b, err := os.ReadFile(i.Path); err != nil || string(b) != string(before) {
			t.Errorf("%q, %v", b, err)
		}
		f.Free()
		if err := i.Update(failed); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(i.Path); err != nil || !strings.Contains(string(b), "has stopped") {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// The real agetty prints the file as it was meant, with the characters that it expands.
func TestAgettyShowsTheIssue(t *testing.T) {
	agetty, err := exec.LookPath("agetty")
	if err != nil {
		agetty = "/usr/sbin/agetty"
	}
	script, errScript := exec.LookPath("script")
	if _, err := os.Stat(agetty); err != nil || errScript != nil {
		t.Skip("agetty and script are in Debian's essential packages, and are missing here")
	}
	i := &Issue{Path: filepath.Join(t.TempDir(), "refit.issue")}
	n := MakeNodeStatus(moment("Failed", nil), AgentRunning, clock)
	n.Sentence += ` C:\n \S`
	if err := i.Update(n); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(script, "-qec", agetty+" --show-issue --issue-file "+i.Path, "/dev/null").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "refit (red, since 2026-11-26 13:40:00 UTC): "+n.Sentence) {
		t.Errorf("%v %q", err, out)
	}
}
