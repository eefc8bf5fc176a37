package simulate

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

const asController = "REFIT_TEST_AS_CONTROLLER"

// TestMain lets the test's own program be the controller's process.
func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if os.Getenv(asController) == "" {
		os.Exit(m.Run())
	}
	f := flag.NewFlagSet("controller", flag.ExitOnError)
	kubeconfig, metrics := f.String("config", "", ""), f.String("metrics", "", "")
	_ = f.Parse(os.Args[1:])
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		err = controller.Run(ctrl.SetupSignalHandler(), controller.Options{Config: cfg, Identity: "simulated", MetricsAddress: *metrics})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Fifty nodes are updated through a real API server, and the controller is killed in the
// middle. Every node reaches its target, the budget is kept, and no node gets more writes
// than the limit. The duration is only reported, because the machine may be busy.
func TestFiftyNodes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fifty nodes take a while: left out by -short")
	}
	bin := apitest.Binaries()
	if bin == "" {
		t.Skip("no kube-apiserver and etcd: set KUBEBUILDER_ASSETS or REFIT_LAB_BIN to their directory, or run `refit-lab up` once")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out := io.Discard
	if testing.Verbose() {
		out = t.Output()
	}
	r, err := Run(ctx, Options{Nodes: 50, Budget: 12, Mean: 2 * time.Second, Seed: 1, Restart: true, BinDir: bin, Dir: t.TempDir(), Out: out,
		Controller: func(kubeconfig, metrics string) *exec.Cmd {
			c := exec.Command(os.Args[0], "-config", kubeconfig, "-metrics", metrics)
			c.Env = append(os.Environ(), asController+"=1")
			return c
		}})
	if err != nil {
		t.Fatalf("%v\n%+v", err, r)
	}
	t.Logf("wall %.1f s, bound %.1f s, decisions %+v, writes %+v", r.WallSeconds, r.BoundSeconds, r.Decisions, r.Writes)
	if r.MaxUnavailable > 12 {
		t.Errorf("%d nodes were unavailable at once, the budget is 12", r.MaxUnavailable)
	}
	if most := MaxWritesPerNode + 6; r.MaxWritesOfANode > most { // the limit is on the mean; one node has the stick, and says so
		t.Errorf("one node was written %d times, %d are allowed", r.MaxWritesOfANode, most)
	}
	if r.Restart == nil || r.Restart.GapSeconds == 0 {
		t.Errorf("the controller was not killed in the middle, or the restart was not measured: %+v", r.Restart)
	}
	for _, name := range []string{"updates", "nodedistribution"} {
		if r.Decisions[name].Count == 0 {
			t.Errorf("no decision of %s was measured", name)
		}
	}
	// Two writes to each Node (cordon, uncordon), one permission: never more, also
	// with a restart in the middle.
	want := map[string]float64{"PATCH nodes": 100, "APPLY nodeupdates": 50}
	got := map[string]float64{}
	for k := range want {
		got[k] = r.Writes.Updating[k]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("writes while updating (-want +got):\n%s", d)
	}
	if r.ControllerRSS == 0 || r.WallSeconds == 0 || math.Abs(r.DrawnMeanSeconds-2) > 0.3 {
		t.Errorf("not measured: %+v", r)
	}
}

func TestMissedLimitsAreNamed(t *testing.T) {
	t.Parallel()
	good := Result{Budget: 10, WritesPerNode: 8, ControllerRSS: MaxRSS, WallOfBound: 1.1, MaxUnavailable: 10,
		Decisions: map[string]Decisions{"updates": {P99: 0.9, ProcessorP99: 0.05}}, Restart: &Restart{GapSeconds: 5}}
	if good.evaluate(); !good.OK {
		t.Errorf("at the limits: %v", good.Problems)
	}
	bad := Result{Budget: 10, WritesPerNode: 8.1, ControllerRSS: MaxRSS + 1<<20, WallOfBound: 1.2, MaxUnavailable: 11,
		Decisions: map[string]Decisions{"updates": {P99: 0.01, ProcessorP99: 0.06}}, Restart: &Restart{GapSeconds: 5.1}}
	if bad.evaluate(); bad.OK || len(bad.Problems) != 6 {
		t.Errorf("beyond every limit: %v", bad.Problems)
	}
	blind := Result{Decisions: map[string]Decisions{"updates": {Count: 7, P99: 0.01}}}
	if blind.evaluate(); blind.OK {
		t.Error("what was not measured passes")
	}
}
