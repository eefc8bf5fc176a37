package clusterapi

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/outbound"
)

const controllersToken = "THE-CONTROLLERS-OWN-TOKEN"

// attacker is a TLS server that records every credential it receives.
type attacker struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newAttacker(t *testing.T) *attacker {
	t.Helper()
	a := &attacker{}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.seen = append(a.seen, r.Header.Get("Authorization")+" "+r.Header.Get("Impersonate-User"))
		http.NotFound(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *attacker) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.seen...)
}

func (a *attacker) ca() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}))
}

// kubeconfig has one cluster and one user with the fields given, each a line.
func kubeconfig(cluster, user string) string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"clusters:\n- name: c\n  cluster:\n    " + strings.ReplaceAll(cluster, "\n", "\n    ") +
		"\nusers:\n- name: u\n  user:\n    " + strings.ReplaceAll(user, "\n", "\n    ") + "\n"
}

func secretWith(value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1"}, Data: map[string][]byte{"value": []byte(value)}}
}

// For every kubeconfig of a tenant: the controller reads no file, runs no program, and the tenant's server receives no request.
func TestKubeconfigWithReferencesIsRefused(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(controllersToken), 0o600); err != nil {
		t.Fatal(err)
	}
	server := "server: " + a.URL
	inline := server + "\ncertificate-authority-data: " + a.ca()
	cases := map[string]struct{ cluster, user, field string }{
		"token file":                 {inline, "tokenFile: " + file, "tokenFile"},
		"token file next to a token": {inline, "token: own\ntokenFile: " + file, "tokenFile"},
		"client certificate file":    {inline, "client-certificate: " + file + "\nclient-key-data: eA==", "client-certificate"},
		"client key file":            {inline, "client-certificate-data: eA==\nclient-key: " + file, "client-key"},
		"CA file":                    {server + "\ncertificate-authority: " + file, "token: own", "certificate-authority"},
		"program":                    {inline, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}", "exec"},
		"auth provider":              {inline, "auth-provider: {name: oidc}", "auth-provider"},
		"proxy":                      {inline + "\nproxy-url: " + a.URL, "token: own", "proxy-url"},
		"unverified server":          {server + "\ninsecure-skip-tls-verify: true", "token: own", "insecure-skip-tls-verify"},
		"impersonated user":          {inline, "token: own\nas: system:admin", "as"},
		"impersonated UID":           {inline, "token: own\nas-uid: x", "as-uid"},
		"impersonated groups":        {inline, "token: own\nas-groups: [system:masters]", "as-groups"},
		"impersonated extra":         {inline, "token: own\nas-user-extra: {a: [b]}", "as-user-extra"},
		"no TLS":                     {"server: " + strings.Replace(a.URL, "https", "http", 1), "token: own", "server"},
		"no CA":                      {server, "token: own", "certificate-authority-data"},
		"no credential":              {inline, "{}", "token"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, err := (&workloadClients{Scheme: scheme(t), Servers: outbound.New(outbound.ServerFlag, "127.0.0.1")}).Client(secretWith(kubeconfig(tc.cluster, tc.user)))
			if err == nil {
				o := &corev1.ConfigMap{}
				_ = c.Get(t.Context(), client.ObjectKey{Namespace: "x", Name: "x"}, o)
				t.Fatalf("a client is made; the server received %q", a.requests())
			}
			if !strings.Contains(err.Error(), "field "+tc.field+" ") {
				t.Errorf("the error does not name the field %s: %v", tc.field, err)
			}
			if strings.Contains(err.Error(), file) || strings.Contains(err.Error(), a.URL) {
				t.Errorf("the error quotes the kubeconfig: %v", err)
			}
		})
	}
	if seen := a.requests(); len(seen) > 0 {
		t.Errorf("the server received %q", seen)
	}
}

// The same fields on users and clusters that the current context does not name
// are refused too: nothing in the Secret may point out of it.
func TestKubeconfigWithReferencesElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	text := kubeconfig("server: "+a.URL+"\ncertificate-authority-data: "+a.ca(), "token: own") + "- name: other\n  user: {tokenFile: /etc/hostname}\n"
	if _, err := (&workloadClients{Scheme: scheme(t), Servers: outbound.New(outbound.ServerFlag, "127.0.0.1")}).Client(secretWith(text)); err == nil || !strings.Contains(err.Error(), "field tokenFile ") {
		t.Errorf("%v", err)
	}
}

// A kubeconfig's server is one that a tenant wrote: it is no service of the controller's
// own machine, unless that was allowed.
func TestKubeconfigOfThisMachineIsNotUsed(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	c, err := (&workloadClients{Scheme: scheme(t)}).Client(secretWith(kubeconfig("server: "+a.URL+"\ncertificate-authority-data: "+a.ca(), "token: own")))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Get(t.Context(), client.ObjectKey{Namespace: "x", Name: "x"}, &corev1.ConfigMap{})
	if !errors.Is(err, outbound.ErrLocal) || !strings.Contains(err.Error(), "-local-server=127.0.0.1") {
		t.Errorf("got %v", err)
	}
	if seen := a.requests(); len(seen) > 0 {
		t.Errorf("the server received %q", seen)
	}
}

func TestKubeconfigIsBuiltFromInlineData(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	s := &workloadClients{Scheme: scheme(t), Servers: outbound.New(outbound.ServerFlag, "127.0.0.1")}
	secret := secretWith(kubeconfig("server: "+a.URL+"\ncertificate-authority-data: "+a.ca(), "token: inline-token"))
	c, err := s.Client(secret)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Get(t.Context(), client.ObjectKey{Namespace: "x", Name: "x"}, &corev1.ConfigMap{})
	seen := a.requests()
	if len(seen) == 0 || strings.TrimSpace(seen[0]) != "Bearer inline-token" {
		t.Errorf("the server received %q", seen)
	}
	for _, text := range []string{"", "hunter2: [", "apiVersion: v1\nkind: Config\ncurrent-context: none\n"} {
		changed := secretWith(text)
		changed.ResourceVersion = "2"
		if _, err := s.Client(changed); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}
