package apiclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// serveCore returns a client of a server with one ConfigMap, and the last event that it got.
func serveCore(t *testing.T, cm *corev1.ConfigMap) (c *Client, event func() []byte) {
	t.Helper()
	var posted []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces/default/events":
			posted, _ = io.ReadAll(r.Body)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		case r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/refit-nodes/configmaps/"+cm.Name:
			_ = json.NewEncoder(w).Encode(cm)
		default:
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`, http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	kubeconfig(t, path, s.URL)
	c = New(path, "n1", slog.New(slog.DiscardHandler))
	return c, func() []byte { return posted }
}

// The agent writes an event without the type of core/v1: the type decides whether it is one.
func TestEventHasTheFormOfCore(t *testing.T) {
	c, event := serveCore(t, &corev1.ConfigMap{})
	if err := c.EmitEvent(t.Context(), "MediumFound", "a stick"); err != nil {
		t.Fatal(err)
	}
	var got corev1.Event
	d := json.NewDecoder(bytes.NewReader(event()))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatalf("%v in %s", err, event())
	}
	if got.FirstTimestamp.IsZero() || !got.FirstTimestamp.Equal(&got.LastTimestamp) {
		t.Errorf("from %v to %v", got.FirstTimestamp, got.LastTimestamp)
	}
	got.FirstTimestamp, got.LastTimestamp = metav1.Time{}, metav1.Time{}
	want := corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "n1.", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: types.UID("n1")},
		Reason:         "MediumFound", Message: "a stick", Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: "refit-agent", Host: "n1"}, ReportingController: "refit-agent", ReportingInstance: "n1", Count: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

// A ConfigMap is read with both kinds of data; one that does not exist is none.
func TestConfigMap(t *testing.T) {
	c, _ := serveCore(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "files"}, Data: map[string]string{"a": "text"}, BinaryData: map[string][]byte{"b": {0, 255}}})
	got, err := c.ConfigMap(t.Context(), "files")
	if err != nil || got == nil || got.Data["a"] != "text" || !bytes.Equal(got.BinaryData["b"], []byte{0, 255}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.ConfigMap(t.Context(), "other"); got != nil || err != nil {
		t.Errorf("a ConfigMap that does not exist: %+v, %v", got, err)
	}
}

// The client decodes what each of its methods reads: its scheme does not have the other kinds.
func TestReadKindsAreDecoded(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{"bundles": "BundleList", "trustpolicies": "TrustPolicyList", "clusterupdates": "ClusterUpdateList", "clusterupdates/x": "ClusterUpdate", "imagetracks/x": "ImageTrack",
		"nodeconfigs": "NodeConfigList", "updatepools": "UpdatePoolList", "osimages": "OSImageList", "namespaces/refit-nodes/contents/x": "Content"}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/apis/refit.dev/v1alpha1/")
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(kinds[path], "List") {
			fmt.Fprintf(w, `{"apiVersion":"refit.dev/v1alpha1","kind":%q,"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"x"}}]}`, kinds[path])
			return
		}
		fmt.Fprintf(w, `{"apiVersion":"refit.dev/v1alpha1","kind":%q,"metadata":{"name":"x"}}`, kinds[path])
	}))
	defer h.Close()
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	kubeconfig(t, path, h.URL)
	c, ctx := New(path, "n1", slog.New(slog.DiscardHandler)), t.Context()
	for name, read := range map[string]func() (int, error){
		"Bundles":        func() (int, error) { l, err := c.Bundles(ctx); return len(l), err },
		"TrustPolicies":  func() (int, error) { l, err := c.TrustPolicies(ctx); return len(l), err },
		"ClusterUpdates": func() (int, error) { l, err := c.ClusterUpdates(ctx); return len(l), err },
		"NodeConfigs":    func() (int, error) { l, err := c.NodeConfigs(ctx); return len(l), err },
		"UpdatePools":    func() (int, error) { l, err := c.UpdatePools(ctx); return len(l), err },
		"OSImages":       func() (int, error) { l, err := c.OSImages(ctx); return len(l), err },
		"ClusterUpdate":  func() (int, error) { o, err := c.ClusterUpdate(ctx, "x"); return len(o.Name), err },
		"ImageTrack":     func() (int, error) { o, err := c.ImageTrack(ctx, "x"); return len(o.Name), err },
		"Content":        func() (int, error) { o, err := c.Content(ctx, "x"); return len(o.Name), err },
	} {
		if n, err := read(); err != nil || n != 1 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}
