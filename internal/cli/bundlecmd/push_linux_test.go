package bundlecmd

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// A pushed bundle is one artifact, a second push sends no blob again, and other tools pull its
// images by digest.
func TestPush(t *testing.T) {
	site(t)
	s := registrytest.Start(t)
	digest := strings.TrimSpace(must(t, "bundle", "create", "--output", "b", "--key", "keys/refit.key", "oci:layout", "payload:kubelet@v1.36.3=kubelet"))
	var v bundleView
	if err := json.Unmarshal([]byte(must(t, "bundle", "inspect", "b", "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	reference := s.Ref("site/bundles:v1.36.3")
	if got := must(t, "bundle", "push", "b", reference); got != digest+" "+reference+"\n" {
		t.Errorf("it prints %q", got)
	}
	s.Requests()
	must(t, "bundle", "push", "b", reference)
	for _, r := range s.Requests() {
		if r.Method != http.MethodHead && r.Method != http.MethodGet && !strings.Contains(r.Path, "/manifests/") {
			t.Errorf("the second push sends %v", r)
		}
	}
	ref, err := name.ParseReference(s.Ref("site/bundles@" + v.Images[0].Digest))
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(ref)
	if err == nil {
		err = validate.Image(img)
	}
	if err != nil {
		t.Errorf("image %s: %v", v.Images[0].Name, err)
	}
	for _, args := range [][]string{{"b", s.Ref("site/bundles@" + digest)}, {"b", "site/bundles"}, {"b"}} {
		if r := refit(t, append([]string{"bundle", "push"}, args...)...); r.code != console.ExitUsage {
			t.Errorf("%v: exit %d: %s", args, r.code, r.err)
		}
	}
	s.Stop()
	if r := refit(t, "bundle", "push", "b", reference); r.code == console.ExitOK || !strings.Contains(r.err, s.Addr) {
		t.Errorf("without the registry: exit %d: %s", r.code, r.err)
	}
}
