package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// hostile clears a screen, sets a title, reverses a line, hides letters, overwrites
// a line and begins one that looks like refit's own.
const hostile = "evil\x1b[2J\x1b]0;owned\a\u009b2J\u202egnp\u200b\u2066\rgood\nVerified: yes, by example\tx"

// named is the same without a line break, which the API server refuses in a name.
var named = strings.NewReplacer("\n", " ", "\t", " ").Replace(hostile)

// hostileAPI is an API server whose every object is full of hostile text.
type hostileAPI struct {
	*httptest.Server
	lists map[string]any // by plural
}

func newHostileAPI(t *testing.T) *hostileAPI {
	t.Helper()
	a := &hostileAPI{lists: map[string]any{}}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *hostileAPI) kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	cfg := kubeconfigOf(&rest.Config{Host: a.URL})
	cfg.Clusters["c"].InsecureSkipTLSVerify = true
	if err := clientcmd.WriteToFile(cfg, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (a *hostileAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, v any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/api":
		answer(200, metav1.APIVersions{Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		v := metav1.GroupVersionForDiscovery{GroupVersion: v1alpha1.GroupVersion.String(), Version: v1alpha1.GroupVersion.Version}
		answer(200, metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: v1alpha1.GroupVersion.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}}})
	case r.URL.Path == "/api/v1":
		answer(200, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "nodes", Kind: "Node", Verbs: metav1.Verbs{"list"}}, {Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list"}}}})
	case r.URL.Path == "/apis/"+v1alpha1.GroupVersion.String():
		answer(200, kindsOfRefit())
	default:
		for _, p := range parts {
			if l, ok := a.lists[p]; ok && p == parts[len(parts)-1] && r.Method == http.MethodGet {
				answer(200, l)
				return
			}
		}
		answer(http.StatusForbidden, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: named})
	}
}

func kindsOfRefit() metav1.APIResourceList {
	l := metav1.APIResourceList{GroupVersion: v1alpha1.GroupVersion.String()}
	crds, err := config.CRDs()
	if err != nil {
		panic(err)
	}
	for _, o := range crds {
		plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
		l.APIResources = append(l.APIResources, metav1.APIResource{Name: plural, Kind: kind, Namespaced: scope == "Namespaced", Verbs: metav1.Verbs{"list", "get"}})
	}
	return l
}

// fill puts hostile text into every string of what a cluster shows.
func (a *hostileAPI) fill() {
	digest := "sha256:" + strings.Repeat("a", 64)
	meta := metav1.ObjectMeta{Name: named, Namespace: named, ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Unix(1, 0)), Labels: map[string]string{named: named}, Annotations: map[string]string{v1alpha1.AnnotationHold: hostile}}
	at := metav1.NewTime(time.Unix(2, 0))
	blocker := v1alpha1.Blocker{Reason: hostile, Message: hostile, Fix: hostile, Object: "Node/" + named, Since: &at}
	conditions := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: "False", Reason: "FromAList", Message: hostile}}
	list := func(plural, kind string, items ...any) {
		version := v1alpha1.GroupVersion.String()
		if kind == "Node" || kind == "Pod" {
			version = "v1"
		}
		a.lists[plural] = map[string]any{"apiVersion": version, "kind": kind + "List", "metadata": map[string]any{}, "items": items}
	}
	list("nodes", "Node", corev1.Node{ObjectMeta: meta, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: hostile, OSImage: hostile}}})
	list("pods", "Pod", corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: named, Containers: []corev1.Container{{Name: named, Image: named}}}})
	nu := v1alpha1.NodeUpdate{ObjectMeta: meta}
	nu.Status.Phase, nu.Status.Message = hostile, hostile
	nu.Status.Agent = &v1alpha1.AgentInfo{Version: hostile, Address: hostile}
	nu.Status.Run = &v1alpha1.NodeRunStatus{Step: hostile}
	list("nodeupdates", "NodeUpdate", nu)
	b := v1alpha1.Bundle{ObjectMeta: meta}
	b.Status = v1alpha1.BundleStatus{Version: hostile, Digest: hostile, Loaded: hostile, KubernetesVersion: hostile, Conditions: conditions, Locations: []v1alpha1.BundleLocation{{Node: named, Device: hostile}}}
	list("bundles", "Bundle", b)
	u := v1alpha1.ClusterUpdate{ObjectMeta: meta, Spec: v1alpha1.ClusterUpdateSpec{Bundle: digest}}
	u.Status = v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseBlocked, Version: hostile, WaitingFor: hostile, Blockers: []v1alpha1.Blocker{blocker}, Warnings: []v1alpha1.Blocker{blocker}, BlockerCount: 1,
		Current: []string{named}, NodesTotal: 3, Resources: &v1alpha1.ResourcesStatus{State: hostile, Message: hostile, Conflicts: []string{hostile}}}
	list("clusterupdates", "ClusterUpdate", u)
	track := v1alpha1.ImageTrack{ObjectMeta: meta}
	track.Status.Conditions = conditions
	list("imagetracks", "ImageTrack", track)
	pool := v1alpha1.UpdatePool{ObjectMeta: meta}
	pool.Status.Conditions = conditions
	list("updatepools", "UpdatePool", pool)
}

// unclean finds what a terminal would obey or hide.
func unclean(text string) string {
	for i, r := range text {
		if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return text[max(0, i-20):min(len(text), i+20)]
		}
	}
	return ""
}

// No text of a bundle, a node or the API server can control the terminal: commands print
// no control character of it, and start no line with it.
func TestEveryCommandPrintsCleanWords(t *testing.T) {
	a := newHostileAPI(t)
	a.fill()
	kubeconfig := a.kubeconfig(t)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	signed := write("signed.bundle", bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1)))
	onMedium := write(hostile[len(hostile)-20:]+"\x1b[2J.bundle", bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1)))
	foreign := write("foreign.bundle", withKeyID(t, hostile))
	torn := write("torn\u202e.bundle", []byte("torn"+hostile))
	for _, args := range [][]string{
		{"status"}, {"status", "-o", "wide"}, {"status", "-o", "json"}, {"status", "-o", "yaml"},
		{"plan"}, {"plan", "--to", named}, {"plan", "-o", "json"}, {"apply"}, {"apply", named, "--yes"}, {"gate"}, {"gate", "-o", "wide"},
		{"approve", named}, {"approve", signed}, {"rollback"}, {"rollback", "--pool", named}, {"pause"}, {"resume"}, {"retry"}, {"hold", named},
		{"explain"}, {"explain", named}, {"explain", "node/" + named}, {"explain", "NodeNotReady"},
		{"drill", "plan"}, {"drill", "status"}, {"tags", "status"}, {"tags", "check"}, {"tags", "lint"}, {"boot", "status"}, {"boot", "check"}, {"image", "list"},
		{"bundle", "inspect", signed}, {"bundle", "inspect", foreign}, {"bundle", "inspect", onMedium}, {"bundle", "inspect", torn}, {"bundle", "list", dir}, {"bundle", "list", dir, "-o", "json"},
		{"bundle", "verify", signed}, {"bundle", "verify", foreign}, {"bundle", "verify", torn}, {"bundle", "verify", onMedium, "--digest", named}, {"bundle", "diff", signed, foreign},
		{"bundle", "extract", signed, named, "--output", filepath.Join(dir, "x")}, {"bundle", "sign", foreign, "--key", torn},
		{"receipt"}, {"receipt", named}, {"receipt", "--text", "--site", hostile}, {"receipts", dir}, {"receipts", named},
		{named}, {"--" + named}, {"version"}, {"--help"}, {"completion", "bash"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			o := &options{Access: inputs.Access{Kubeconfig: kubeconfig, Out: &out, Err: &out}}
			console.Execute(ctx, rootOf("refit", o), args, interrupted)
			if got := unclean(out.String()); got != "" {
				t.Errorf("printed %q in %q", got, out.String())
			}
			for line := range strings.Lines(out.String()) {
				if strings.HasPrefix(line, "Verified: yes") {
					t.Errorf("a line of foreign words: %q", out.String())
				}
			}
			if out.Len() == 0 {
				t.Error("nothing was printed")
			}
		})
	}
}

// withKeyID is a bundle whose signature names a key id of its own form.
func withKeyID(t *testing.T, id string) []byte {
	t.Helper()
	data := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
	path := filepath.Join(t.TempDir(), "b")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	env := f.Header().Signatures
	env[0].Signatures[0].KeyID = id
	slot, err := bundle.EncodeSlot(env)
	if err != nil {
		t.Fatal(err)
	}
	copy(data[f.Header().SlotOffset():], slot)
	return data
}

// No other file of the command line reaches standard output or error past the
// writer that escapes.
func TestNothingPrintsPastTheWriter(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir // programs of tests, no part of the command line
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "root.go" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, word := range []string{"os.Stdout", "os.Stderr", "fmt.Print(", "fmt.Println(", "fmt.Printf("} {
			if bytes.Contains(text, []byte(word)) {
				t.Errorf("%s writes to %s: use the writers of cluster.Access or of the command", path, word)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
