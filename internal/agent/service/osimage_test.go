package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/agent/apiclient"
	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// exports is a runtime that has one image.
type exports struct{ digest, manifest, layout string }

func (e exports) Export(_ context.Context, digest, dir string) (string, error) {
	if digest != e.digest {
		return "", containerd.ErrNoImage
	}
	return e.manifest, os.CopyFS(dir, os.DirFS(e.layout))
}

// The image comes from the node's runtime, from an earlier download, or from the registry, in
// this order. A download needs no registry again, and only one is kept.
func TestWhereAnImageIs(t *testing.T) {
	r := registrytest.Start(t)
	one := r.Push("os/edge", registrytest.Image{Version: "1", Platforms: []string{"linux/amd64", "linux/arm64"}})
	two := r.Push("os/edge", registrytest.Image{Version: "2"})
	ref := func(digest string) string { return r.Ref("os/edge@" + digest) }
	dir := filepath.Join(t.TempDir(), "os-images")
	h := osHost{nodeHost: &nodeHost{}, dir: dir, registries: outbound.New(outbound.AgentRegistry, r.Addr)}
	is := func(what string, s osdriver.Source, err error, transport string) {
		t.Helper()
		if err != nil || s.Transport != transport {
			t.Fatalf("%s: %+v, %v", what, s, err)
		}
	}
	kept := func() (out []string) {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	s, same, err := h.Image(t.Context(), ref(one))
	is("asked for", s, err, osdriver.Registry)
	if len(same) == 0 || len(kept()) > 0 {
		t.Fatalf("other digests %v, kept %v", same, kept())
	}
	s, fetched, err := h.Fetch(t.Context(), ref(one))
	is("fetched", s, err, osdriver.Layout)
	if d := cmp.Diff(same, fetched); d != "" {
		t.Fatal("fetched it is known by other digests: ", d)
	}
	if _, err := os.Stat(filepath.Join(s.Location, "index.json")); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	s, _, err = h.Image(t.Context(), ref(one))
	is("the registry is unreachable", s, err, osdriver.Layout)
	s, _, err = h.Fetch(t.Context(), ref(one))
	is("fetched again", s, err, osdriver.Layout)
	if _, _, err := h.Fetch(t.Context(), ref(two)); err == nil || !strings.Contains(err.Error(), "not on this node") {
		t.Fatalf("another image, and the registry is unreachable: %v", err)
	}
	r.Resume()
	s, _, err = h.Fetch(t.Context(), ref(two))
	is("another", s, err, osdriver.Layout)
	if d := cmp.Diff([]string{strings.TrimPrefix(two, "sha256:")}, kept()); d != "" {
		t.Fatal("what was fetched for another stays: ", d)
	}
	h.images = exports{one, "sha256:of-this-platform", layoutFor(t, runtime.GOARCH)}
	s, same, err = h.Image(t.Context(), ref(one))
	is("the node's own", s, err, osdriver.Layout)
	if d := cmp.Diff([]string{"sha256:of-this-platform"}, same); d != "" {
		t.Fatal(d)
	}
	s, _, err = h.Fetch(t.Context(), ref(two))
	is("one that the node's own runtime does not have", s, err, osdriver.Layout)
	if err := h.Forget(); err != nil || len(kept()) > 0 {
		t.Fatal(err, kept())
	}
	if _, _, err := h.Image(t.Context(), r.Ref("os/edge:latest")); err == nil {
		t.Fatal("a tag is taken for an image")
	}
}

// layoutFor writes an image for machines of an architecture, without an index.
func layoutFor(t *testing.T, architecture string) string {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: architecture, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "image")
	p, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = p.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The runtime exports a single manifest for any machine. A node refuses one for other machines before
// it is drained, and tries no second time.
func TestAnImageForOtherMachines(t *testing.T) {
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	h := osHost{nodeHost: &nodeHost{}, dir: filepath.Join(t.TempDir(), "os-images"), images: exports{digest, "sha256:m", layoutFor(t, "s390x")}}
	_, _, err := h.Fetch(t.Context(), "q/os@"+digest)
	if !errors.Is(err, osdriver.ErrUnsupported) || !strings.Contains(err.Error(), "linux/s390x") {
		t.Fatal(err)
	}
}

// nodeOf is a node whose API server answers so.
func nodeOf(t *testing.T, code int, body string) osHost {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes/n1" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	if code == 0 {
		s.Close()
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "kubelet.conf")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: '" + s.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return osHost{nodeHost: &nodeHost{node: "n1", kubeconfig: conf, paths: kube.Paths{Root: dir}}}
}

// The Ready condition counts only if the kubelet of this boot reported it. An unavailable API
// server is distinguished from a fault of the node.
func TestReady(t *testing.T) {
	boot, err := (&nodeHost{}).BootID()
	if err != nil {
		t.Fatal(err)
	}
	node := func(ready, message, boot string) string {
		return fmt.Sprintf(`{"status":{"conditions":[{"type":"DiskPressure","status":"False"},{"type":"Ready","status":%q,"message":%q}],"nodeInfo":{"kubeletVersion":"v1.35.4","bootID":%q}}}`, ready, message, boot)
	}
	for name, c := range map[string]struct {
		code int
		body string
		says string
		away bool
	}{
		"Ready, by this boot":                {200, node("True", "kubelet is posting ready status", boot), "", false},
		"Ready, without a boot ID":           {200, node("True", "", ""), "", false},
		"Ready, by the boot before":          {200, node("True", "kubelet is posting ready status", "other"), "has not reported this boot", false},
		"not Ready":                          {200, node("False", "container runtime network not ready", boot), "the node is not Ready: container runtime network not ready", false},
		"nothing was heard of it for long":   {200, node("Unknown", "", boot), "the node is not Ready", false},
		"it has no such node":                {404, "", "no such object", false},
		"it answers, and is not well":        {503, "", "503", true},
		"it does not answer":                 {0, "", "does not answer", true},
		"it answers something else entirely": {200, "<html>", "this node's Node object", false},
	} {
		t.Run(name, func(t *testing.T) {
			says, away := nodeOf(t, c.code, c.body).Ready(t.Context())
			if away != c.away || !strings.Contains(says, c.says) || (says == "") != (c.says == "") {
				t.Fatalf("%q, away %v", says, away)
			}
		})
	}
	plane := nodeOf(t, 0, "")
	manifest := filepath.Join(plane.paths.Manifests(), "kube-apiserver.yaml")
	if err := os.MkdirAll(filepath.Dir(manifest), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "kind: Pod\nmetadata: {name: kube-apiserver}\nspec: {containers: [{name: kube-apiserver, image: 'x:1', command: [kube-apiserver, --advertise-address=127.0.0.1, --secure-port=1]}]}\n"
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if says, away := plane.Ready(t.Context()); away || !strings.Contains(says, "does not answer") {
		t.Fatalf("a control plane whose own API server does not answer: %q, away %v", says, away)
	}
	h := osHost{nodeHost: &nodeHost{node: "n1", kubeconfig: filepath.Join(t.TempDir(), "none")}}
	if says, away := h.Ready(t.Context()); says == "" || away {
		t.Fatalf("without a kubeconfig: %q, away %v", says, away)
	}
	if err := error(apiclient.UnavailableError{Message: "x", Cause: fmt.Errorf("dial: %w", unix.ENETUNREACH)}); !errors.Is(err, unix.ENETUNREACH) {
		t.Fatal("why an API server does not answer is lost")
	}
}
