package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

const (
	// olderCommit is the tree of this repository that was published last. Its programs stand for the minor version before
	// this one.
	olderCommit  = "944202d905"
	olderVersion = "0.1.0"
	newerVersion = "0.2.0"
)

// skewNode is what was seen of a node whose agent and controller are of two versions.
type skewNode struct {
	When, Node, Agent, Controller string
	Restarts, Message             string
	Pinned                        int
}

// programs builds refit, its agent and its controller in a folder and returns where.
func programs(t *testing.T, source, version string) string {
	t.Helper()
	out := t.TempDir()
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -X github.com/refit-dev/refit/internal/componentversion.refit="+version,
		"-o", out+"/", "./cmd/...")
	c.Dir, c.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build refit %s: %v\n%s", version, err, text)
	}
	return out
}

// programsOf builds a commit of this repository; a checkout without it skips the test.
func programsOf(t *testing.T, commit string) string {
	t.Helper()
	archive, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "archive", commit).Output()
	if err != nil {
		t.Skipf("commit %s is not in the history of this checkout (a shallow clone?): git archive: %v", commit, err)
	}
	source := t.TempDir()
	c := exec.CommandContext(t.Context(), "tar", "-x", "-C", source)
	c.Stdin = bytes.NewReader(archive)
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("unpack commit %s: %v\n%s", commit, err, text)
	}
	return programs(t, source, olderVersion)
}

// skewed is a cluster whose parts are of two versions of refit.
type skewed struct {
	*scenario.Scenario
	older, newer string // folders with programs
	base         scenario.Bundle
}

// runRefit runs a refit command of one version that must succeed.
func (s *skewed) runRefit(t *testing.T, programs string, args ...string) string {
	t.Helper()
	s.Refit = filepath.Join(programs, "refit")
	r, err := s.Run(t.Context(), args...)
	if err != nil || r.Code != 0 {
		t.Fatalf("refit %s: exit code %d, %v\n%s%s", strings.Join(args, " "), r.Code, err, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// install installs a bundle's agents on hosts, and its controller. The lab's shell is
// always that of this tree.
func (s *skewed) install(t *testing.T, programs string, b scenario.Bundle, hosts ...string) {
	t.Helper()
	s.runRefit(t, programs, "install", "--from", b.Path, "--ssh", strings.Join(hosts, ","), "--rsh", s.newer+"/refit-lab --name "+s.Name+" rsh")
}

// installAgent installs an agent alone, as the first half of an upgrade does.
func (s *skewed) installAgent(t *testing.T, programs, node string) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(programs, "refit-agent"))
	must(t, err)
	must(t, s.Lab.WriteFile(t.Context(), node, "/var/tmp/refit-agent.install", program, 0o755))
	must(t, s.Exec(t.Context(), node, "sh", "-c", "/var/tmp/refit-agent.install install && rm /var/tmp/refit-agent.install"))
}

// skewedSite is a cluster, with two workers for the pods of a node that is drained, on which the older version installed everything and pinned its images.
func skewedSite(t *testing.T, name, older, newer string) *skewed {
	t.Helper()
	s := &skewed{older: older, newer: newer}
	s.Scenario = prepared(t, scenario.Options{Name: name, From: from, To: to, Nodes: 3, MediumNode: "n1", Refit: filepath.Join(newer, "refit")})
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	s.Refit = filepath.Join(older, "refit")
	var err error
	s.base, err = s.MakeBundle(ctx, scenario.BundleOptions{File: "base.tar", Version: strings.TrimPrefix(from, "v"), Release: s.FromRelease()})
	must(t, err)
	device, err := s.Insert(ctx, "n1", s.base)
	must(t, err)
	hosts := s.Lab.Nodes()
	hosts[0] += ":" + device
	s.install(t, older, s.base, hosts...)
	must(t, s.Approve(ctx, s.base))
	copied(t, s.Scenario)
	must(t, s.Eject(ctx, "n1", device))
	return s
}

// works waits until a node's agent of a version writes its status, and asks that its
// kubelet runs, that systemd never started the agent again, and that every image is pinned.
func (s *skewed) works(t *testing.T, when, node, agent, controller string) {
	t.Helper()
	ctx, since := t.Context(), time.Now()
	seen := skewNode{When: when, Node: node, Agent: agent, Controller: controller}
	eventually(t, 3*time.Minute, "the agent of "+node+" writes its status", func() (bool, string) {
		nu, err := nodeUpdate(t, s.Scenario, node)
		if err != nil || nu.Status.Agent == nil || nu.Status.Agent.Heartbeat == nil {
			return false, fmt.Sprint("no heartbeat ", err)
		}
		seen.Message = nu.Status.Message
		for _, p := range nu.Status.Problems {
			seen.Message += "; " + p.Reason + ": " + p.Message
		}
		a := nu.Status.Agent
		return a.Version == agent && a.Heartbeat.After(since.Add(-2*time.Second)), a.Version + " " + a.Heartbeat.UTC().Format(time.TimeOnly) + " " + seen.Message
	})
	eventually(t, 2*time.Minute, "the kubelet of "+node+" is Ready", func() (bool, string) {
		version, ready, err := s.Kubelet(ctx, node)
		return err == nil && ready, fmt.Sprint(version, " ", err)
	})
	out, err := s.Output(ctx, node, "systemctl", "show", "-P", "NRestarts", "refit-agent")
	must(t, err)
	if seen.Restarts = strings.TrimSpace(out); seen.Restarts != "0" {
		t.Errorf("%s: systemd restarted the agent of %s %s times", when, node, seen.Restarts)
	}
	seen.Pinned = s.pinned(ctx, t, node)
	measured(t, "nodes", seen)
}

// pinned counts the images of the older release that a node's runtime pins: all that the node needs.
func (s *skewed) pinned(ctx context.Context, t *testing.T, node string) int {
	t.Helper()
	c, err := s.CRI(node)
	must(t, err)
	defer c.Close()
	present, err := c.Images(ctx)
	must(t, err)
	n := 0
	for name, digest := range s.Needed(s.base, node) {
		is := slices.ContainsFunc(present, func(p cri.Image) bool {
			return p.Pinned && slices.Contains(p.Tags, name) && slices.ContainsFunc(p.Digests, func(d string) bool { return strings.HasSuffix(d, "@"+digest) })
		})
		if is {
			n++
		} else if !strings.Contains(name, "refit") { // another version of it takes its place
			t.Errorf("image %s is not pinned on %s", name, node)
		}
	}
	return n
}

// target brings the bundle of the newer release to the site.
func (s *skewed) target(t *testing.T, programs string) (b scenario.Bundle, device string) {
	t.Helper()
	s.Refit = filepath.Join(programs, "refit")
	b, err := s.MakeBundle(t.Context(), scenario.BundleOptions{File: "target.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	device, err = s.Insert(t.Context(), "n1", b)
	must(t, err)
	return b, device
}

// update moves the cluster with a version's commands and asks that every node arrived.
func (s *skewed) update(t *testing.T, programs string, b scenario.Bundle) {
	t.Helper()
	s.Refit = filepath.Join(programs, "refit")
	_, err := s.Prepare(t.Context(), b)
	must(t, err)
	must(t, s.Apply(t.Context()))
	s.arrived(t)
}

// arrived asks that every node is Ready at the newer release.
func (s *skewed) arrived(t *testing.T) {
	t.Helper()
	for _, n := range s.Lab.Nodes() {
		version, ready, err := s.Kubelet(t.Context(), n)
		must(t, err)
		if version != to || !ready {
			t.Errorf("%s: kubelet %s, Ready %t", n, version, ready)
		}
	}
}

// TestSkew runs the programs of older commits next to those of this tree, on real nodes.
func TestSkew(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("two versions of refit in one cluster: make e2e")
	}
	keepResult(t, "skew.json", func() any {
		stories := map[string][]outcome{}
		for name, steps := range played {
			if story, ok := strings.CutPrefix(name, t.Name()+"/"); ok {
				stories[story] = steps
			}
		}
		return map[string]any{"older": olderCommit, "stories": stories, "measured": noted[t.Name()]}
	})
	older, newer := programsOf(t, olderCommit), programs(t, "../..", newerVersion)
	t.Run("older agents", func(t *testing.T) { olderAgents(t, skewedSite(t, "skewold", older, newer)) })
	t.Run("newer agents", func(t *testing.T) { newerAgents(t, skewedSite(t, "skewnew", older, newer)) })
}

// olderAgents: a newer controller updates nodes whose agents are one minor version older.
func olderAgents(t *testing.T, s *skewed) {
	t.Helper()
	step(t, "a configuration of a newer version stops neither the agent nor the kubelet", func(t *testing.T) {
		must(t, s.Exec(t.Context(), "n2", "sh", "-c", "echo 'fromTheNextVersion: {a: 1}' >> /etc/refit/agent.yaml && sync"))
		boot := bootOf(t, s.Scenario, "n2")
		must(t, s.Lab.CutPower(t.Context(), "n2"))
		eventually(t, 3*time.Minute, "n2 is in a new boot", func() (bool, string) {
			var n corev1.Node
			err := s.Client.Get(t.Context(), client.ObjectKey{Name: "n2"}, &n)
			return err == nil && n.Status.NodeInfo.BootID != boot, fmt.Sprint(err)
		})
		s.works(t, "agent.yaml of a newer version", "n2", olderVersion, olderVersion)
		eventually(t, time.Minute, "the status names the file", func() (bool, string) {
			nu, err := nodeUpdate(t, s.Scenario, "n2")
			must(t, err)
			return slices.ContainsFunc(nu.Status.Problems, func(p v1alpha1.NodeProblem) bool {
				return p.Reason == v1alpha1.ReasonAgentConfigInvalid && strings.Contains(p.Message, "fromTheNextVersion")
			}), fmt.Sprint(nu.Status.Problems)
		})
	})
	b, device := s.target(t, s.newer)
	step(t, "a newer controller with older agents", func(t *testing.T) {
		s.install(t, s.newer, b, "n1:"+device)
		s.works(t, "controller first", "n2", olderVersion, newerVersion)
		must(t, s.Approve(t.Context(), b))
		s.update(t, s.newer, b)
	})
}

// newerAgents: an older controller updates nodes whose agents are one minor version newer.
func newerAgents(t *testing.T, s *skewed) {
	t.Helper()
	step(t, "newer agents with an older controller", func(t *testing.T) {
		b, _ := s.target(t, s.older)
		for _, n := range s.Lab.Nodes() {
			s.installAgent(t, s.newer, n)
			s.works(t, "agents first", n, newerVersion, olderVersion)
		}
		must(t, s.Approve(t.Context(), b))
		s.update(t, s.older, b)
	})
}
