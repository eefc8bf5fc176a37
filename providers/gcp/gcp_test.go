package gcp

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud"
)

// compute answers in the form of Compute Engine's published API, to a service account.
type compute struct {
	*Cloud
	answers map[string]string
	code    int
}

func newCompute(t *testing.T) *compute {
	t.Helper()
	c := &compute{answers: map[string]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := c.answers[strings.TrimPrefix(r.URL.Path, "/compute/v1/projects/fedora/global/images/")]
		switch {
		case r.URL.Path == "/token":
			_, _ = w.Write([]byte(`{"access_token":"t","token_type":"Bearer","expires_in":3600}`))
		case r.Header.Get("Authorization") != "Bearer t":
			w.WriteHeader(http.StatusUnauthorized)
		case c.code != 0:
			w.WriteHeader(c.code)
			_, _ = fmt.Fprintf(w, `{"error":{"code":%d,"message":"as the test set it","errors":[{"reason":"forbidden"}]}}`, c.code)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":{"code":404,"message":"The resource was not found","errors":[{"message":"The resource was not found","domain":"global","reason":"notFound"}]}}`))
		default:
			_, _ = w.Write([]byte(answer))
		}
	}))
	t.Cleanup(server.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "refit@fedora.test", "private_key_id": "k", "token_uri": server.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(file, account, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	c.Cloud = &Cloud{Config: Config{Endpoint: server.URL}}
	return c
}

func wanted() cloud.Wanted {
	return cloud.Wanted{Image: bootstream.Image{Key: bootstream.Key{Architecture: "amd64", Platform: "gcp"}, Version: "41.20250105.3.0",
		Attributes: map[string]string{"project": "fedora", "name": "coreos-41", "family": "coreos-stable"}}}
}

func TestResolve(t *testing.T) {
	c := newCompute(t)
	ready := `{"kind":"compute#image","name":"coreos-41","status":"READY","family":"coreos-stable","architecture":"X86_64","creationTimestamp":"2025-01-07T10:00:00.000-08:00"%s}`
	for _, tc := range []struct {
		name, image, family, problem, newest string
		exists, deprecated                   bool
	}{
		{name: "none"},
		{name: "none, and the family lags", family: "coreos-40", newest: "coreos-40"},
		{name: "ready", image: fmt.Sprintf(ready, ""), family: "coreos-41", exists: true},
		{name: "a newer one", image: fmt.Sprintf(ready, ""), family: "coreos-42", exists: true, newest: "coreos-42"},
		{name: "deprecated", image: fmt.Sprintf(ready, `,"deprecated":{"state":"DEPRECATED","deprecated":"2026-01-01T00:00:00Z"}`), family: "coreos-41", exists: true, deprecated: true},
		{name: "obsolete", image: fmt.Sprintf(ready, `,"deprecated":{"state":"OBSOLETE"}`), problem: "image coreos-41 is obsolete"},
		{name: "pending", image: `{"name":"coreos-41","status":"PENDING"}`, problem: "in status PENDING"},
	} {
		clear(c.answers)
		if tc.image != "" {
			c.answers["coreos-41"] = tc.image
		}
		if tc.family != "" {
			c.answers["family/coreos-stable"] = fmt.Sprintf(`{"name":%q,"status":"READY"}`, tc.family)
		}
		a, err := c.Resolve(context.Background(), wanted())
		if err != nil || a.Exists != tc.exists || a.Newest != tc.newest || !strings.Contains(a.Problem, tc.problem) || (a.Problem == "") != (tc.problem == "") || a.Deprecated.IsZero() == tc.deprecated {
			t.Errorf("%s: %+v %v", tc.name, a, err)
		}
		if a.Exists && (a.Architecture != "X86_64" || !a.Created.Equal(time.Date(2025, 1, 7, 18, 0, 0, 0, time.UTC))) {
			t.Errorf("%s: %+v", tc.name, a)
		}
	}
}

// Only the API itself can say that an image does not exist.
func TestErrors(t *testing.T) {
	c := newCompute(t)
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusInternalServerError} {
		c.code = code
		if a, err := c.Resolve(context.Background(), wanted()); err == nil || !strings.Contains(err.Error(), "as the test set it") {
			t.Errorf("%d: %+v %v", code, a, err)
		}
	}
	if _, err := c.Resolve(context.Background(), cloud.Wanted{}); err == nil || !strings.Contains(err.Error(), "project and the name") {
		t.Error(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none"))
	if _, err := c.Resolve(context.Background(), wanted()); err == nil || !strings.Contains(err.Error(), "credentials of Google Cloud") {
		t.Error(err)
	}
}
