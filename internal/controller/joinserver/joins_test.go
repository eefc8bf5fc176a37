package joinserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/controller/joinserver"
	"github.com/refit-dev/refit/internal/convert"
)

const (
	secretConfig = `{"ignition":{"version":"3.2.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}}`
	accept3      = "application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1"
	accept2      = "application/vnd.coreos.ignition+json;version=2.4.0, */*;q=0.1"
)

// site is a real API server, and the server with the rights it is installed with.
type site struct {
	t        *testing.T
	admin    client.Client
	server   *joinserver.Server
	recorder *events.FakeRecorder
	mu       sync.Mutex
	now      time.Time
}

func newSite(t *testing.T) *site {
	t.Helper()
	cfg := apitest.Start(t)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	own, err := client.New(apitest.As(cfg, apitest.ControllerUser), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	objs, err := config.Joins()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objs {
		if err := admin.Create(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{t: t, admin: admin, now: time.Now(), recorder: events.NewFakeRecorder(100)}
	s.server = joinserver.New(own, s.recorder, logr.Discard(), joinserver.Options{Now: s.clock, Names: []string{"127.0.0.1"}})
	s.secret("first-boot-worker", secretConfig, map[string]string{"refit.dev/minimum-ignition": "2.14.0", "refit.dev/boot-image-fix": "Use image 9.6 (refit bootimage status)."})
	return s
}

func (s *site) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *site) later(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *site) secret(name, config string, annotations map[string]string) {
	s.t.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: convert.JoinNamespace, Name: name, Annotations: annotations}, Data: map[string][]byte{"config": []byte(config)}}
	if err := s.admin.Create(context.Background(), o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) token(pool string, life time.Duration) string {
	s.t.Helper()
	token, made, err := convert.NewJoinToken(pool, s.clock().Add(life))
	if err != nil {
		s.t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(made), token) {
		s.t.Error("the record holds the token")
	}
	if err := s.admin.Create(context.Background(), &corev1.Secret{ObjectMeta: made}); err != nil {
		s.t.Fatal(err)
	}
	return token
}

// ask as a machine at an address.
func (s *site) ask(token, from, accept, agent string) (int, string) {
	r := httptest.NewRequest(http.MethodGet, "/join/"+token, nil)
	r.RemoteAddr = net.JoinHostPort(from, "40000")
	r.Header.Set("Accept", accept)
	r.Header.Set("User-Agent", agent)
	w := httptest.NewRecorder()
	s.server.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// Issue part 7: a token serves one machine; an old boot image reads why.
func TestJoins(t *testing.T) {
	s := newSite(t)
	good := s.token("worker", time.Hour)
	if code, body := s.ask(good, "10.0.0.1", accept3, "Ignition/2.20.0"); code != http.StatusOK || body != secretConfig {
		t.Fatalf("%d %s", code, body)
	}
	validate(t, secretConfig)
	for name, tc := range map[string]struct {
		token, from, accept, agent string
		code                       int
		says, hides                string
	}{
		"a token that was used":          {good, "10.0.0.2", accept3, "Ignition/2.20.0", http.StatusForbidden, "make another", "core"},
		"the same machine asks again":    {good, "10.0.0.1", accept3, "Ignition/2.20.0", http.StatusOK, "core", "\x00"},
		"a token that does not exist":    {strings.Repeat("A", 43), "10.0.0.2", accept3, "Ignition/2.20.0", http.StatusForbidden, "not known", "core"},
		"no token":                       {"", "10.0.0.2", accept3, "Ignition/2.20.0", http.StatusForbidden, "not known", "core"},
		"a path for a token":             {"..%2f..%2fx", "10.0.0.2", accept3, "Ignition/2.20.0", http.StatusForbidden, "not known", "core"},
		"a token that has ended":         {s.token("worker", -time.Second), "10.0.0.2", accept3, "Ignition/2.20.0", http.StatusForbidden, "has ended", "core"},
		"a pool without a configuration": {s.token("nobody", time.Hour), "10.0.0.2", accept3, "Ignition/2.20.0", http.StatusServiceUnavailable, "ask again", "first-boot"},
		"a person":                       {s.token("worker", time.Hour), "10.0.0.2", "*/*", "curl/8", http.StatusBadRequest, "asked by Ignition", "core"},
	} {
		code, body := s.ask(tc.token, tc.from, tc.accept, tc.agent)
		if code != tc.code || !strings.Contains(body, tc.says) || strings.Contains(body, tc.hides) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	s.later(3 * time.Minute)
	if code, _ := s.ask(good, "10.0.0.1", accept3, "Ignition/2.20.0"); code != http.StatusForbidden {
		t.Errorf("some minutes later the same address gets nothing either: %d", code)
	}

	old := s.token("worker", time.Hour)
	for spec, agent := range map[string]string{accept2: "Ignition/0.35.0", accept3: "Ignition/2.2.1"} {
		code, body := s.ask(old, "10.0.0.3", spec, agent)
		if code != http.StatusOK || !strings.Contains(body, "/etc/issue.d/") || !strings.Contains(body, "Use%20image%209.6") || strings.Contains(body, "ssh-ed25519") {
			t.Errorf("%s: %d %s", agent, code, body)
		}
		if spec == accept3 {
			validate(t, body)
		} else if !strings.Contains(body, `"version":"2.2.0"`) {
			t.Errorf("an image of version 2 gets what it reads: %s", body)
		}
	}
	if n := len(s.recorder.Events); n != 2 {
		t.Errorf("%d events of 2 old images", n)
	}
	if e := <-s.recorder.Events; !strings.Contains(e, "BootImageTooOld") || !strings.Contains(e, "10.0.0.3") {
		t.Error(e)
	}
	if code, body := s.ask(old, "10.0.0.4", accept3, "Ignition/2.20.0"); code != http.StatusOK || body != secretConfig {
		t.Errorf("the token of a machine that was too old is still good: %d %s", code, body)
	}
}

func validate(t *testing.T, config string) {
	t.Helper()
	bin, err := exec.LookPath("ignition-validate")
	if err != nil {
		t.Log("ignition-validate is not installed: what is served is not shown to it")
		return
	}
	file := filepath.Join(t.TempDir(), "config.ign")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bin, file).CombinedOutput(); err != nil {
		t.Errorf("ignition refuses it: %v\n%s\n%s", err, out, config)
	}
}

// 100 machines at once: 50 tokens, two machines for each. Every token serves one.
func TestHundredJoinsUseEachTokenOnce(t *testing.T) {
	s := newSite(t)
	const tokens = 50
	var all []string
	for range tokens {
		all = append(all, s.token("worker", time.Hour))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	served := map[string]int{}
	for i := range 2 * tokens {
		wg.Add(1)
		go func() {
			defer wg.Done()
			token := all[i%tokens]
			code, body := s.ask(token, fmt.Sprintf("10.0.1.%d", i), accept3, "Ignition/2.20.0")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case code == http.StatusOK && body == secretConfig:
				served[token]++
			case code != http.StatusForbidden:
				t.Errorf("%d %s", code, body)
			}
		}()
	}
	wg.Wait()
	for _, token := range all {
		if served[token] != 1 {
			t.Errorf("a token served %d machines", served[token])
		}
	}
}

// Over the wire, with the certificate that the server keeps itself.
func TestServesWithItsOwnCertificate(t *testing.T) {
	s := newSite(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	keeper := s.server.Listen(address)
	if err := keeper.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { done <- s.server.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var held corev1.Secret
	if err := s.admin.Get(ctx, client.ObjectKey{Namespace: "refit-system", Name: convert.Server}, &held); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(held.Data["ca.crt"])
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: 10 * time.Second}
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/join/"+s.token("worker", time.Hour), nil)
	req.Header.Set("Accept", accept3)
	req.Header.Set("User-Agent", "Ignition/2.20.0")
	var resp *http.Response
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if resp, err = c.Do(req); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || string(body) != secretConfig || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
	c.CloseIdleConnections()
}
