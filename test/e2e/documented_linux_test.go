package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// documentedMove is the move of a cluster by the distribution's own way.
type documentedMove struct {
	Steps []string `json:"steps"`
	// Waits are the containers that waited for an image, until all nodes had moved.
	Waits []scenario.ImageWait `json:"containersWithoutImage"`
	// Requests for a registry that nodes made.
	Requests int64   `json:"requestsForRegistry"`
	Seconds  float64 `json:"seconds"`
}

// backOff is the kubelet's reason for a container whose image it tries to pull again and again.
const backOff = "ImagePullBackOff"

// TestLookAlikeDocumentedWay moves three nodes of each look-alike over a minor version as the documentation of
// k3s, RKE2 and k0s says for sites without a registry, node by node: the comparison to TestLookAlikeUpdate. The first
// server applies the new add-ons. The next node moves only when a container waits with ImagePullBackOff; with the last
// node all containers have their images.
func TestLookAlikeDocumentedWay(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own for each distribution: make e2e")
	}
	for _, d := range lookAlikes {
		t.Run(d.name, func(t *testing.T) {
			s := prepared(t, scenario.Options{Name: "doc-" + d.name, Distribution: d.name, From: d.from, To: d.to, Nodes: 3, MediumNode: "n2"})
			m := &documentedMove{Steps: []string{"on each node, the server first: copy the new archives into the folder of images", "replace the program",
				"restart the unit and wait until the node is Ready", "after the server wait for " + backOff + ", then the next node"}}
			keepResult(t, "lookalike-documented-"+d.name+".json", func() any {
				return map[string]any{"distribution": "look-alike of " + d.name, "from": d.from, "to": d.to, "documentedWay": m}
			})
			must(t, s.Components(t.Context()))
			must(t, s.Up(t.Context()))
			documentedWay(t, s, m)
		})
	}
}

// documentedWay updates node by node: images folder, program, restart.
func documentedWay(t *testing.T, s *scenario.Scenario, m *documentedMove) {
	t.Helper()
	ctx := t.Context()
	program, err := components.ForLookAlike(ctx, s.To, func(line string) { t.Log(line) })
	must(t, err)
	watch, stop := context.WithCancel(ctx)
	defer stop()
	images, began := scenario.WatchImages(watch, s.Client), time.Now()
	for i, n := range s.Lab.Nodes() {
		must(t, s.MoveAsDocumented(ctx, n, program))
		eventually(t, 3*time.Minute, n+" is Ready at "+s.To, func() (bool, string) { return hasRelease(t, s, n, s.To) })
		if i == 0 {
			eventually(t, 3*time.Minute, "a container waits with "+backOff, func() (bool, string) {
				m.Waits = images.Waits()
				return slices.ContainsFunc(m.Waits, func(w scenario.ImageWait) bool { return slices.Contains(w.Reasons, backOff) }), fmt.Sprintf("%+v", m.Waits)
			})
		}
	}
	eventually(t, 6*time.Minute, "no container waits for an image any more", func() (bool, string) {
		before := images.Waits()
		time.Sleep(5 * time.Second)
		m.Waits = images.Waits()
		return fmt.Sprintf("%+v", before) == fmt.Sprintf("%+v", m.Waits), fmt.Sprintf("%+v", m.Waits)
	})
	m.Seconds = time.Since(began).Seconds()
	out, err := s.Outside(ctx)
	must(t, err)
	m.Requests = out.Requests
}

// hasRelease reports whether a node without an agent is Ready at the release of a version: the kubelet of k0s does not
// report the build.
func hasRelease(t *testing.T, s *scenario.Scenario, node, version string) (bool, string) {
	t.Helper()
	found, ready, err := s.Kubelet(t.Context(), node)
	if err != nil {
		return false, err.Error()
	}
	have, want := distribution.SplitVersion(found), distribution.SplitVersion(version)
	return ready && have.Release == want.Release && have.Distribution == want.Distribution, found
}
