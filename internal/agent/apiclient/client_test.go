package apiclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// server speaks just enough of the API; a real one is used in config's and the
// controller's tests.
type server struct {
	mu      sync.Mutex
	applied []byte
	query   string
	kind    string
	watch   chan string
	lists   int
}

const object = `{"apiVersion":"refit.dev/v1alpha1","kind":"NodeUpdate","metadata":{"name":"n1","namespace":"refit-nodes","generation":%d,"resourceVersion":"%d"},"spec":{"pins":"pins-%d"}}`

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	const base = "/apis/refit.dev/v1alpha1/namespaces/refit-nodes/"
	switch path := strings.TrimPrefix(r.URL.Path, base); {
	case path == "nodeupdates" && r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		for {
			select {
			case e, ok := <-s.watch:
				if !ok {
					return
				}
				fmt.Fprintln(w, e)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	case path == "nodeupdates":
		s.mu.Lock()
		s.lists++
		s.mu.Unlock()
		if r.URL.Query().Get("fieldSelector") != "metadata.name=n1" {
			http.Error(w, `{"kind":"Status","status":"Failure","message":"all nodes were asked for"}`, http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"apiVersion":"refit.dev/v1alpha1","kind":"NodeUpdateList","metadata":{"resourceVersion":"1"},"items":[`+object+`]}`, 1, 1, 1)
	case path == "contents/pins-1":
		fmt.Fprint(w, `{"apiVersion":"refit.dev/v1alpha1","kind":"Content","metadata":{"name":"pins-1"},"type":"hold","data":"{}"}`)
	case path == "nodeupdates/n1/status" && r.Method == http.MethodPatch:
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.applied, s.query, s.kind = b, r.URL.RawQuery, r.Header.Get("Content-Type")
		s.mu.Unlock()
		fmt.Fprintf(w, object, 1, 2, 1)
	default:
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`, http.StatusNotFound)
	}
}

func kubeconfig(t *testing.T, path, url string) {
	t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestClient(t *testing.T) {
	s := &server{watch: make(chan string)}
	h := httptest.NewServer(s)
	defer h.Close()
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	kubeconfig(t, path, h.URL)
	c := New(path, "n1", slog.New(slog.DiscardHandler))
	t.Run("one object is watched, through ends of the watch", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan *v1alpha1.NodeUpdate, 10)
		ended := make(chan struct{})
		go func() { c.Watch(ctx, func(nu *v1alpha1.NodeUpdate) { got <- nu }); close(ended) }()
		next := func() *v1alpha1.NodeUpdate {
			t.Helper()
			select {
			case nu := <-got:
				return nu
			case <-time.After(20 * time.Second):
				t.Fatal("nothing came")
				return nil
			}
		}
		if nu := next(); nu.Spec.Pins != "pins-1" {
			t.Fatalf("%+v", nu)
		}
		s.watch <- `{"type":"MODIFIED","object":` + fmt.Sprintf(object, 2, 5, 2) + `}`
		if nu := next(); nu.Generation != 2 || nu.Spec.Pins != "pins-2" {
			t.Fatalf("%+v", nu)
		}
		s.watch <- `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`
		if nu := next(); nu.Generation != 1 { // listed anew
			t.Fatalf("%+v", nu)
		}
		s.watch <- `{"type":"DELETED","object":` + fmt.Sprintf(object, 1, 6, 1) + `}`
		if nu := next(); nu != nil {
			t.Fatalf("deleted, and still %+v", nu)
		}
		cancel()
		<-ended
	})
	t.Run("a status is applied whole, by its owner", func(t *testing.T) {
		if err := c.ApplyStatus(t.Context(), &v1alpha1.NodeUpdateStatus{Phase: "Ready"}); err != nil {
			t.Fatal(err)
		}
		var body struct {
			Metadata struct{ Name, Namespace string }
			Spec     any
			Status   struct{ Phase string }
		}
		if err := json.Unmarshal(s.applied, &body); err != nil {
			t.Fatal(err)
		}
		if body.Status.Phase != "Ready" || body.Metadata.Name != "n1" || body.Spec != nil ||
			s.kind != "application/apply-patch+yaml" || !strings.Contains(s.query, "fieldManager=refit-agent") || !strings.Contains(s.query, "force=true") {
			t.Fatalf("%s, %s, %s", s.applied, s.kind, s.query)
		}
	})
	t.Run("a Content is read by name", func(t *testing.T) {
		if got, err := c.Content(t.Context(), "pins-1"); err != nil || got.Data != "{}" {
			t.Fatalf("%+v, %v", got, err)
		}
		if _, err := c.Content(t.Context(), "pins-9"); err == nil || !strings.Contains(err.Error(), "pins-9") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("a moved API server is followed when the kubeconfig says so", func(t *testing.T) {
		moved := &server{watch: make(chan string)}
		h2 := httptest.NewServer(moved)
		defer h2.Close()
		kubeconfig(t, path, h2.URL)
		if err := c.ApplyStatus(t.Context(), &v1alpha1.NodeUpdateStatus{Phase: "Idle"}); err != nil || moved.applied == nil {
			t.Fatalf("%v; asked the new one: %v", err, moved.applied != nil)
		}
	})
}
