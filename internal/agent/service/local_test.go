package service

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// An image's name comes from an object: it leads the agent to no service of its own node.
func TestNoRegistryOfThisNode(t *testing.T) {
	r := registrytest.Start(t)
	image := r.Ref("os/edge@" + r.Push("os/edge", registrytest.Image{Version: "1"}))
	r.Requests()
	h := osHost{nodeHost: &nodeHost{}, dir: filepath.Join(t.TempDir(), "os-images"), registries: outbound.New(outbound.AgentRegistry)}
	_, _, err := h.Fetch(t.Context(), image)
	if n := len(r.Requests()); err == nil || n != 0 {
		t.Fatalf("%d requests: %v", n, err)
	}
	for _, word := range []string{r.Addr, "loopback", "localRegistries", "agent.yaml"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it does not say %s: %v", word, err)
		}
	}
}
