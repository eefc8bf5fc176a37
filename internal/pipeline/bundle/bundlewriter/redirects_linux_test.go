package bundlewriter

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// Images come from a registry that asks for the login of docker, and redirects to a storage. The storage
// gets no login, also if it asks for one. No error has its signed URLs.
func TestImagesFromARegistryThatRedirects(t *testing.T) {
	dir := twoImages(t)
	_, want := create(t, Options{Sources: []string{"oci:" + dir}})
	for name, tokens := range map[string]bool{"with a password": false, "with a token": true} {
		t.Run(name, func(t *testing.T) {
			cloud := registrytest.StartCloud(t, tokens)
			home := t.TempDir()
			if err := os.WriteFile(filepath.Join(home, "config.json"), cloud.Keys(), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("DOCKER_CONFIG", home)
			pushLayout(t, dir, cloud.Addr, remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: registrytest.User, Password: registrytest.Password})))
			o := Options{Sources: []string{"docker://" + cloud.Addr + "/team/app:v1"}, Key: bundletest.Key(1), Version: "1.0.0"}
			_, h := create(t, o)
			if got := h.ImageByName(cloud.Addr + "/team/app:v1"); got == nil || got.Digest != want.ImageByName(appName).Digest {
				t.Errorf("%+v", got)
			}
			if n, _ := cloud.Blobs(); n == 0 || len(cloud.Leaks()) > 0 {
				t.Errorf("the storage served %d requests; with a login: %q", n, cloud.Leaks())
			}
			cloud.Answer = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",scope="repository:other/app:push"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, err := Create(t.Context(), filepath.Join(t.TempDir(), "b"), o, nil)
			if err == nil || strings.Contains(err.Error(), registrytest.Signature) || strings.Contains(err.Error(), registrytest.Password) {
				t.Errorf("a storage that asks for a login: %v", err)
			}
			if _, granted := cloud.Blobs(); len(cloud.Leaks()) > 0 || strings.Contains(strings.Join(granted, " "), "other/app") {
				t.Errorf("tokens for %q, with a login: %q", granted, cloud.Leaks())
			}
		})
	}
}
