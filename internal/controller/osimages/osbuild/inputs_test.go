package osbuild

import (
	"net/http"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/outbound"
)

// A proxy that an object names is no way around what the controller refuses.
func TestNoProxyLeadsToThisMachine(t *testing.T) {
	x := Inputs{proxy: v1alpha1.OSBuildProxy{HTTP: "http://proxy.example:3128", HTTPS: "http://proxy.example:3128"}}
	over, ok := x.Transport(outbound.New(outbound.RegistryFlag).Transport()).(*http.Transport)
	if !ok {
		t.Fatal("no transport")
	}
	ask := func(url string) (string, error) {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, err := over.Proxy(req)
		if u == nil {
			return "", err
		}
		return u.Host, err
	}
	for _, url := range []string{"http://169.254.169.254/latest", "https://[fd00:ec2::254]/", "https://[::ffff:169.254.169.254]/"} {
		if got, err := ask(url); err == nil || !strings.Contains(err.Error(), "-local-registry") {
			t.Errorf("%s goes by way of %q: %v", url, got, err)
		}
	}
	if got, err := ask("https://registry.example/v2/"); err != nil || got != "proxy.example:3128" {
		t.Errorf("%q, %v", got, err)
	}
}
