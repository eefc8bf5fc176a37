package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// Bounds of an update of three nodes with one control plane, in seconds.
const (
	apiUnavailableBound = 15
	updateBound         = 90
	demoBound           = 180
)

// moveOf is one run of the demo.
type moveOf struct {
	Load string `json:"loadBefore"`
	// APIUnavailableSeconds in all, UpdateSeconds of the three nodes, WholeSeconds from the
	// making of the bundle until the update is done.
	APIUnavailableSeconds float64 `json:"apiUnavailableSeconds"`
	UpdateSeconds         float64 `json:"updateSeconds"`
	WholeSeconds          float64 `json:"wholeSeconds"`
	// LabSeconds is how long the cluster took to come up.
	LabSeconds float64            `json:"labSeconds"`
	Phases     map[string]float64 `json:"phases"`
}

// TestControlPlane moves the demo's cluster twice: with the control plane replaced together,
// and with kubeadm replacing one component after another.
func TestControlPlane(t *testing.T) {
	resultsDir(t) // skips where nothing is measured
	runs := map[v1alpha1.ControlPlaneMethod]moveOf{}
	for _, method := range []v1alpha1.ControlPlaneMethod{v1alpha1.ControlPlaneTogether, v1alpha1.ControlPlaneKubeadm} {
		runs[method] = runDemo(t, method)
	}
	us, kubeadm := runs[v1alpha1.ControlPlaneTogether], runs[v1alpha1.ControlPlaneKubeadm]
	if us.APIUnavailableSeconds > apiUnavailableBound || us.UpdateSeconds > updateBound || us.WholeSeconds > demoBound {
		t.Errorf("API server unavailable for %.1f s (bound %d), update %.1f s (%d), whole %.1f s (%d)", us.APIUnavailableSeconds, apiUnavailableBound, us.UpdateSeconds, updateBound, us.WholeSeconds, demoBound)
	}
	writeResult(t, "controlplane.json", map[string]any{
		"machine": thisMachine(), "together": us, "kubeadm": kubeadm,
		"ratios": map[string]float64{"apiUnavailable": us.APIUnavailableSeconds / kubeadm.APIUnavailableSeconds, "update": us.UpdateSeconds / kubeadm.UpdateSeconds},
	})
}

// runDemo plays the demo and reads what it measured.
func runDemo(t *testing.T, method v1alpha1.ControlPlaneMethod) moveOf {
	t.Helper()
	m := moveOf{Load: load()}
	file := filepath.Join(t.TempDir(), "demo.json")
	c := exec.CommandContext(t.Context(), "../bin/refit-lab", "demo", "--name", "bench", "--control-plane", string(method), "--result", file)
	c.Stderr = t.Output()
	if err := c.Run(); err != nil {
		t.Fatalf("the demo with controlPlane %s: %v", method, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r scenario.Result
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", file, err))
	}
	m.APIUnavailableSeconds, m.UpdateSeconds, m.LabSeconds, m.Phases = r.APIUnavailableSeconds, r.Phases["update"], r.Phases["labUp"], r.Phases
	for _, phase := range []string{"bundleCreate", "install", "approve", "prepare", "update"} {
		m.WholeSeconds += r.Phases[phase]
	}
	return m
}
