package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// twoBack is two minor versions before to; from is between them.
const twoBack = "v1.34.4"

// TestTwoHops moves a cluster over two minor versions, in one update with one approved plan, from one ordinary stick with two
// bundles. Between the hops the update pauses, and every node loses power, with what was not flushed.
func TestTwoHops(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a third release of Kubernetes, and two updates: make e2e")
	}
	s := start(t, "hops", 3, func(o *scenario.Options) { o.From = twoBack })
	keepStory(t, "hops.json")
	ctx := t.Context()
	between, err := components.Release(ctx, from, func(line string) { t.Log(line) })
	must(t, err)
	hop, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "hop.tar", Version: strings.TrimPrefix(from, "v"), Release: between})
	must(t, err)
	target, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	install, err := s.Insert(ctx, s.MediumNode, hop)
	must(t, err)
	must(t, s.Install(ctx, hop, install))
	must(t, s.Eject(ctx, s.MediumNode, install))
	twoHops(t, s, hop, target, from, to, func(what string, value any) { measured(t, what, value) })
}

// twoHops moves a cluster from one stick to the bundle hop with a power cut of all nodes, and then to target. between and last
// are the versions of their kubelets.
func twoHops(t *testing.T, s *scenario.Scenario, hop, target scenario.Bundle, between, last string, measured func(what string, value any)) {
	t.Helper()
	ctx := t.Context()
	step(t, "one plan has both hops, and every node holds both bundles", func(t *testing.T) { hopsHeld(t, s, hop, target) })
	began := time.Now()
	plan := clusterUpdate(t, s).Status.PlanDigest
	step(t, "the first hop is done, and the update pauses", func(t *testing.T) {
		startUpdate(t, s)
		if r, err := s.Run(ctx, "pause", "--after-hop"); err != nil || r.Code != 0 {
			t.Fatalf("pause: exit code %d, %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
		}
		eventually(t, 15*time.Minute, "the first hop is done", func() (bool, string) {
			v, err := clusterUpdateOf(t, s)
			return err == nil && v.BetweenHops() && slices.ContainsFunc(v.Status.Blockers, func(b v1alpha1.Blocker) bool { return b.Reason == v1alpha1.ReasonPaused }), fmt.Sprint(v.Status.Phase, v.Status.WaitingFor, err)
		})
		allAt(t, s, between)
		measured("firstHopSeconds", int(time.Since(began).Seconds()))
	})
	step(t, "every node loses power between the hops", func(t *testing.T) {
		allLosePower(t, s)
		allAt(t, s, between)
	})
	step(t, "the second hop ends at the target, with the plan that was approved", func(t *testing.T) {
		if v := clusterUpdate(t, s); v.Status.PlanDigest != plan || !v.BetweenHops() {
			t.Fatalf("after the power cut: %+v", v.Status)
		}
		resumed := time.Now()
		if r, err := s.Run(ctx, "resume"); err != nil || r.Code != 0 {
			t.Fatalf("resume: exit code %d, %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
		}
		hopsDone(t, s, plan, last)
		measured("secondHopSeconds", int(time.Since(resumed).Seconds()))
	})
	step(t, "no pod asked for an image, and no packet left the lab", func(t *testing.T) {
		liveNoPull(t, s, began)
		noRequestForARegistry(t, s)
		out, err := s.Outside(ctx)
		must(t, err)
		measured("outside", out)
	})
}

// hopsHeld plans both hops from one stick, and waits until every node holds both bundles.
func hopsHeld(t *testing.T, s *scenario.Scenario, hop, target scenario.Bundle) {
	t.Helper()
	ctx := t.Context()
	_, err := s.InsertFile(ctx, s.MediumNode, mediumWith(t, s, hop, target))
	must(t, err)
	must(t, s.Approve(ctx, hop))
	must(t, s.Approve(ctx, target))
	r, err := s.Run(ctx, "plan", "--hop", hop.Digest, "--to", target.Digest, "--wait", "--timeout", "15m")
	if err != nil || r.Code != 0 {
		t.Fatalf("plan: exit code %d, %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	t.Log(r.Stdout)
	for _, n := range s.Lab.Nodes() {
		holdsAll(t, s, n, hop)
		holdsAll(t, s, n, target)
	}
	if v := clusterUpdate(t, s); len(v.Spec.Hops) != 1 || len(v.Status.Hops) != 2 || v.Status.PlanDigest == "" {
		t.Fatalf("%+v %+v", v.Spec, v.Status)
	}
}

// allLosePower cuts the power of all nodes at once, and waits until the cluster is back.
func allLosePower(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	boots := map[string]string{}
	for _, n := range s.Lab.Nodes() {
		boots[n] = bootOf(t, s, n)
	}
	ended := make(chan error, len(boots))
	for n := range boots {
		go func() { ended <- s.Lab.CutPower(t.Context(), n) }()
	}
	for range boots {
		must(t, <-ended)
	}
	allReady(t, s, boots)
}

// hopsDone follows the update to its end: all nodes at the last version, with the plan that was approved.
func hopsDone(t *testing.T, s *scenario.Scenario, plan, last string) {
	t.Helper()
	r, err := s.Run(t.Context(), "status", "--watch", "--timeout", "15m")
	if err != nil || r.Code != 0 {
		t.Fatalf("status --watch: exit code %d, %v\n%s", r.Code, err, r.Stdout)
	}
	allAt(t, s, last)
	v := clusterUpdate(t, s)
	if v.Status.Phase != v1alpha1.PhaseDone || v.Status.PlanDigest != plan {
		t.Errorf("%+v", v.Status)
	}
	for _, h := range v.Status.Hops {
		if h.StartedAt == nil || h.FinishedAt == nil || !v.Status.StartedAt.Before(h.FinishedAt) {
			t.Errorf("hop %+v", h)
		}
	}
}

// mediumWith is the image of a FAT32 stick with bundles.
func mediumWith(t *testing.T, s *scenario.Scenario, bundles ...scenario.Bundle) string {
	t.Helper()
	medium, size := s.Path("stick.img"), int64(64<<20)
	for _, b := range bundles {
		size += b.Size
	}
	must(t, os.WriteFile(medium, nil, 0o600))
	must(t, os.Truncate(medium, size))
	commands := [][]string{{"mkfs.vfat", "-F", "32", medium}}
	for _, b := range bundles {
		commands = append(commands, []string{"mcopy", "-i", medium, b.Path, "::"})
	}
	for _, c := range commands {
		if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
	return medium
}

// clusterUpdateOf is the one ClusterUpdate that there is.
func clusterUpdateOf(t *testing.T, s *scenario.Scenario) (v1alpha1.ClusterUpdate, error) {
	t.Helper()
	var list v1alpha1.ClusterUpdateList
	err := s.Client.List(t.Context(), &list)
	if err == nil && len(list.Items) != 1 {
		err = fmt.Errorf("%d ClusterUpdates, want 1", len(list.Items))
	}
	if err != nil {
		return v1alpha1.ClusterUpdate{}, err
	}
	return list.Items[0], nil
}

func clusterUpdate(t *testing.T, s *scenario.Scenario) v1alpha1.ClusterUpdate {
	t.Helper()
	u, err := clusterUpdateOf(t, s)
	must(t, err)
	return u
}

// allAt asks that every node runs a version and is Ready. Where the kubelet does not report the build, the agent does: it may
// have to observe the node again after a start.
func allAt(t *testing.T, s *scenario.Scenario, version string) {
	t.Helper()
	eventually(t, time.Minute, "every node is Ready at "+version, func() (bool, string) { return areAt(t, s, version) })
}

// areAt reports whether every node runs a version and is Ready, and which do not.
func areAt(t *testing.T, s *scenario.Scenario, version string) (bool, string) {
	t.Helper()
	var other []string
	for _, n := range s.Lab.Nodes() {
		found, ready, err := s.Kubelet(t.Context(), n)
		if err == nil {
			found, err = releaseOf(t, s, n, found)
		}
		if err != nil || found != version || !ready {
			other = append(other, fmt.Sprintf("%s: %s, Ready %t, %v", n, found, ready, err))
		}
	}
	return len(other) == 0, strings.Join(other, "; ")
}

// releaseOf is the release that a node runs, whose kubelet reports a version.
func releaseOf(t *testing.T, s *scenario.Scenario, node, kubelet string) (string, error) {
	t.Helper()
	nu, err := nodeUpdate(t, s, node)
	if err != nil || nu.Status.Observed == nil {
		return kubelet, err
	}
	return distribution.Release(kubelet, nu.Status.Observed.KubeletVersion), nil
}
