package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// firewall is a file of a NodeConfig whose last lines decide what gets in and out. The tables of
// others stay.
func firewall(policy string) string {
	return "table inet site {}\ndelete table inet site\ntable inet site {\n" +
		"  chain in { type filter hook input priority 0; policy " + policy + "; iif lo accept; }\n" +
		"  chain out { type filter hook output priority 0; policy " + policy + "; oif lo accept; }\n}\n"
}

// cutOff is a run that cut its node off, as results/cutoff.json has it.
type cutOff struct {
	What string `json:"what"`
	// State, Reason and Message of the run.
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// SecondsWithout is how long the node refused all packets.
	SecondsWithout int `json:"secondsWithoutNetwork"`
}

// TestCutOffNodeComesBack gives a node a firewall that lets nothing in or out. No administrator
// reaches the node. It undoes the change by itself after its deadline, also if its power is cut
// meanwhile and the firewall starts with it again.
func TestCutOffNodeComesBack(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("the deadline of a node takes minutes: make e2e")
	}
	const node = "n3"
	s := start(t, "cutoff", 3)
	ctx := t.Context()
	own, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "refit.tar", Version: "1.0.0", LeaveKubernetes: true})
	must(t, err)
	dev, err := s.Insert(ctx, s.MediumNode, own)
	must(t, err)
	must(t, s.Install(ctx, own, dev))
	must(t, s.Eject(ctx, s.MediumNode, dev))
	minute := int32(60)
	p := pool()
	p.Spec.OnFailure, p.Spec.UndoDeadlineSeconds = "", &minute
	must(t, s.Client.Create(ctx, p))
	text := firewall("accept")
	must(t, s.Client.Create(ctx, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "firewall"}, Spec: v1alpha1.NodeConfigSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node}},
		Files:        []v1alpha1.NodeFile{{Path: "/etc/nftables.conf", Contents: &v1alpha1.FileContents{Inline: &text}, Units: []string{"nftables.service"}}},
		Units:        []v1alpha1.NodeUnit{{Name: "nftables.service", State: "enabled"}}}}))
	planned(t, s)
	must(t, s.Apply(ctx))
	rules := func() string {
		out, err := s.Output(ctx, node, "nft", "list", "table", "inet", "site")
		return fmt.Sprint(out, err)
	}
	if got := rules(); !strings.Contains(got, "policy accept") {
		t.Fatalf("the firewall of %s is not on: %s", node, got)
	}
	var seen []cutOff
	keepResult(t, "cutoff.json", func() any { return map[string]any{"runs": seen} })
	for i, c := range []struct {
		what  string
		while func()
	}{
		{"a firewall that refuses everything", func() {}},
		{"the same, and a power cut meanwhile", func() { must(t, s.Lab.Crash(ctx, node)) }},
	} {
		step(t, c.what, func(t *testing.T) {
			setFirewall(t, s, firewall("drop")+fmt.Sprintf("# try %d\n", i))
			edited(t, s)
			planned(t, s)
			startUpdate(t, s)
			eventually(t, 5*time.Minute, "the firewall refuses everything", func() (bool, string) {
				got := rules()
				return strings.Contains(got, "policy drop"), got
			})
			began := time.Now()
			time.Sleep(15 * time.Second) // so that the node has seen it
			c.while()
			eventually(t, 5*time.Minute, "the firewall is as before", func() (bool, string) {
				got := rules()
				return strings.Contains(got, "policy accept"), got
			})
			without := int(time.Since(began).Seconds())
			var run v1alpha1.NodeRunStatus
			eventually(t, 5*time.Minute, "the node reports why", func() (bool, string) {
				nu, err := nodeUpdateOf(ctx, s, node)
				if err != nil || nu.Status.Run == nil {
					return false, fmt.Sprint(err)
				}
				run = *nu.Status.Run
				return run.State == v1alpha1.RunFailed, fmt.Sprintf("%s: %s", run.State, run.Message)
			})
			seen = append(seen, cutOff{c.what, string(run.State), run.Reason, run.Message, without})
			if run.Reason != v1alpha1.ReasonUndoneByDeadline {
				t.Errorf("the run failed with %s: %s", run.Reason, run.Message)
			}
			if got, err := s.Output(ctx, node, "cat", "/etc/nftables.conf"); err != nil || strings.Contains(got, "drop") {
				t.Errorf("the file is not as before (%v):\n%s", err, got)
			}
			ready(t, s, node)
			v, _ := status(t, s)
			if !strings.Contains(v.Headline, node) {
				t.Errorf("refit status does not name the node: %s", v.Headline)
			}
		})
		eventually(t, time.Minute, "the administrator gives the change up", func() (bool, string) {
			err := s.Client.DeleteAllOf(ctx, &v1alpha1.ClusterUpdate{}) // an update that moves nodes stays
			return err == nil, fmt.Sprint(err)
		})
		setFirewall(t, s, text)
		eventually(t, 2*time.Minute, "the node is as wanted, and takes pods", func() (bool, string) {
			var c v1alpha1.NodeConfig
			must(t, s.Client.Get(ctx, client.ObjectKey{Name: "firewall"}, &c))
			cordoned, err := s.Cordoned(ctx, node)
			return c.Status.ObservedGeneration == c.Generation && c.Status.Current == c.Status.Nodes && !cordoned && err == nil, fmt.Sprintf("%+v, cordoned %v, %v", c.Status, cordoned, err)
		})
	}
}

func setFirewall(t *testing.T, s *scenario.Scenario, text string) {
	t.Helper()
	var c v1alpha1.NodeConfig
	must(t, s.Client.Get(t.Context(), client.ObjectKey{Name: "firewall"}, &c))
	c.Spec.Files[0].Contents = &v1alpha1.FileContents{Inline: &text}
	must(t, s.Client.Update(t.Context(), &c))
}

// edited waits until the node is known not to be as wanted.
func edited(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	eventually(t, 2*time.Minute, "the node is not as wanted", func() (bool, string) {
		var c v1alpha1.NodeConfig
		if err := s.Client.Get(t.Context(), client.ObjectKey{Name: "firewall"}, &c); err != nil {
			return false, err.Error()
		}
		return c.Status.ObservedGeneration == c.Generation && c.Status.Current < c.Status.Nodes, fmt.Sprintf("%+v", c.Status)
	})
}

// planned makes an update and waits until it may start.
func planned(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	r, err := s.Run(t.Context(), "plan", "--wait", "--timeout", "5m")
	if err != nil || r.Code != 0 {
		t.Fatalf("plan: exit code %d, %v:\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
}

func ready(t *testing.T, s *scenario.Scenario, node string) {
	t.Helper()
	eventually(t, 3*time.Minute, "node "+node+" is Ready", func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, is, err := s.Kubelet(ctx, node)
		return is && err == nil, fmt.Sprint(is, err)
	})
}
