package gate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

var now = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

func ready(name string, cp bool) *Node {
	return &Node{Name: name, ControlPlane: cp, InPlan: true, Ready: true, AgentKnown: true, Heartbeat: now.Add(-time.Minute),
		WantPinSet: "pins-1", PinSetHasBundle: true, WantImages: 9, WantPayloads: 2,
		Loaded:      &LoadedContent{Content: "pins-1", ImagesTotal: 9, ImagesReady: 9, ImagesPinned: 9, PayloadsTotal: 2, PayloadsReady: 2},
		FileSystems: []FileSystem{{Name: "state", ID: "a", Free: 1000}, {Name: "images", ID: "a", Free: 1000}}}
}

func open() Input {
	return Input{Now: now, Bundle: "sha256:1", Approved: true, PlanDigest: "sha256:p", Nodes: []*Node{ready("n1", true), ready("n2", false)}}
}

// Every check, alone: what closes it and what it says.
func TestChecks(t *testing.T) {
	cases := map[string]struct {
		change  func(*Input)
		closed  string
		message string
		fix     string
		waiting bool
		warning bool
	}{
		"everything in order":                    {change: func(*Input) {}},
		"a bundle without an approval":           {change: func(in *Input) { in.Approved = false }, closed: "bundle-approved", message: "no Bundle or TrustPolicy approves bundle sha256:1"},
		"the planner's blocker is passed on":     {change: func(in *Input) { in.PlanBlockers = []model.Blocker{{Message: "skew"}} }, closed: "plan", message: "skew"},
		"another plan was approved":              {change: func(in *Input) { in.ApprovedPlan = "sha256:q" }, closed: "plan-unchanged", message: "plan sha256:q was approved, but the plan is now sha256:p"},
		"this plan was approved":                 {change: func(in *Input) { in.ApprovedPlan = "sha256:p" }},
		"another update moves nodes":             {change: func(in *Input) { in.Running = "u" }, closed: "no-other-update", message: "ClusterUpdate u has started", waiting: true},
		"every node holds the OS image it boots": {change: func(in *Input) { in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Nodes: 3, Ready: 3}} }},
		"a node fetches the OS image": {change: func(in *Input) {
			in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Nodes: 3, Ready: 2, Reason: "ImagesMissing", Message: "they are fetching it"}}
		}, closed: "os-images-held", message: "OS image r/os@sha256:1 is held by 2 of 3 nodes of pool edge: they are fetching it", waiting: true},
		"nodes that were not counted yet": {change: func(in *Input) { in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Nodes: 3}} }, closed: "os-images-held", message: "held by 0 of 3", waiting: true},
		"the registry has it no more": {change: func(in *Input) {
			in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Nodes: 3, Reason: "OSImageAbsent", Message: "registry of r/os: it has no sha256:1"}}
		}, closed: "os-images-held", message: "it has no sha256:1"},
		"the registry denies it": {change: func(in *Input) {
			in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Nodes: 3, Reason: "RegistryUnauthorized", Message: "denied"}}
		}, closed: "os-images-held", message: "denied"},
		"the registry is unreachable": {change: func(in *Input) {
			in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Nodes: 3, Reason: "RegistryUnreachable", Message: "away"}}
		}, closed: "os-images-held", message: "away", waiting: true},
		"runtimes cannot fetch what the OS itself can": {change: func(in *Input) {
			in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Nodes: 3, Reason: "OSImageNotFetched", Message: "https"}}
		}, message: "https", warning: true},
		"the image of a pool cannot be built": {change: func(in *Input) {
			in.OSBuilds = []OSBuild{{Pool: "edge", OSImage: "os", Build: "os-1", Image: "r/os@sha256:1", Message: "build os-1 failed: no package x"}}
		}, closed: "os-images-built", message: "nodes of pool edge do not get the image of OSImage os in this update, they keep r/os@sha256:1: build os-1 failed: no package x", fix: "refit accept os-images-built"},
		"the image of a pool was not tried": {change: func(in *Input) {
			in.OSBuilds = []OSBuild{{Pool: "edge", OSImage: "os", Message: "the Containerfile has no FROM"}}
		}, message: "they have no image of it yet: the Containerfile has no FROM", fix: "kubectl describe osimage os", warning: true},
		"an OS image that nodes cannot boot": {change: func(in *Input) {
			in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Findings: []OSImageFinding{{Blocker: model.Blocker{Reason: "OSImageKernel", Message: "no kernel", Fix: "another base"}}}}}
		}, closed: "os-images-fit", message: "OS image r/os@sha256:1 of pool edge: no kernel", fix: "another base"},
		"an OS image with a warning": {change: func(in *Input) {
			in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Findings: []OSImageFinding{{Warning: true, Blocker: model.Blocker{Message: "no unit"}}}}}
		}, message: "OS image r/os@sha256:1 of pool edge: no unit", warning: true},
		"an OS image that is being read": {change: func(in *Input) { in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Reading: true}} }, closed: "os-images-fit", message: "refit reads what is in it", waiting: true},
		"an OS image that no registry has": {change: func(in *Input) { in.OSImages = []OSImage{{Pool: "edge", Image: "r/os@sha256:1", Unread: "away"}} },
			message: "refit cannot read what is in it, so it is not checked: away", fix: "refit image lint", warning: true},
		"a node without agent":         {change: func(in *Input) { in.Nodes[1] = &Node{Name: "n2", Ready: true, InPlan: true} }, closed: "agents", message: "node n2 has no refit agent"},
		"an agent that was just heard": {change: func(in *Input) { in.Nodes[1].Heartbeat = now.Add(-SilentAfter(0)) }},
		"an agent with a long heartbeat interval, as configured": {change: func(in *Input) {
			in.Nodes[1].Heartbeat, in.Nodes[1].HeartbeatSeconds = now.Add(-SilentAfter(960)), 960
		}},
		"a node that the bundle is not made for": {change: func(in *Input) {
			in.Nodes[1].Planned, in.Nodes[1].Misfits = true, []model.Blocker{{Message: "node n2 runs containerd 1.7.2; the bundle needs containerd 2.0.0 or later", Fix: "update containerd first"}}
		}, closed: "constraints", message: "node n2 runs containerd 1.7.2; the bundle needs containerd 2.0.0 or later", fix: "update containerd first"},
		"a node without steps that the bundle is not made for": {change: func(in *Input) {
			in.Nodes[1].Misfits = []model.Blocker{{Message: "node n2 is linux/arm64"}}
		}},
		"an agent without the plan's updater": {change: func(in *Input) {
			in.Nodes[1].Needs, in.Nodes[1].Agent = &Needs{Updaters: []string{"kubelet", "files"}, Refit: "0.2.0"}, AgentInfo{Version: "0.1.0", Updaters: []string{"kubelet"}}
		}, closed: "agent-versions", message: "node n2 runs agent 0.1.0, and the plan needs what agents of refit 0.2.0 have: updater files", fix: "refit install --from BUNDLE --ssh n2, with a bundle that has refit 0.2.0"},
		"an agent that cannot read a format": {change: func(in *Input) {
			in.Nodes[1].Needs, in.Nodes[1].Agent = &Needs{Formats: []string{"refit.dev/config/v2"}, Refit: "0.2.0"}, AgentInfo{Version: "0.1.0", Updaters: []string{"kubelet"}, Formats: []string{"refit.dev/config/v1"}}
		}, closed: "agent-versions", message: "node n2 runs agent 0.1.0, and the plan needs what agents of refit 0.2.0 have: format refit.dev/config/v2", fix: "refit-agent install --from FILE|DEVICE"},
		"an agent without several capabilities": {change: func(in *Input) {
			in.Nodes[1].Needs, in.Nodes[1].Agent = &Needs{Updaters: []string{"files"}, Formats: []string{"f", "g"}, Refit: "0.2.0"}, AgentInfo{Version: "0.1.0", Updaters: []string{"kubelet"}, Formats: []string{"f"}}
		}, closed: "agent-versions", message: "agents of refit 0.2.0 have: updater files, format g", fix: "0.2.0"},
		"an agent from before updaters were reported": {change: func(in *Input) {
			in.Nodes[1].Needs, in.Nodes[1].Agent = &Needs{Updaters: []string{"kubelet"}, Refit: "0.2.0"}, AgentInfo{Version: "0.1.0"}
		}, closed: "agent-versions", message: "node n2 runs agent 0.1.0, which does not report its updaters and formats; the plan needs an agent of refit 0.2.0", fix: "refit install --from BUNDLE --ssh n2"},
		"a newer agent than the controller that has all of it": {change: func(in *Input) {
			in.Nodes[1].Needs, in.Nodes[1].Agent = &Needs{Updaters: []string{"kubelet"}, Formats: []string{"f"}, Refit: "0.2.0"}, AgentInfo{Version: "0.3.0", Updaters: []string{"files", "kubelet", "new"}, Formats: []string{"f", "g"}}
		}},
		"an agent that has all of it": {change: func(in *Input) {
			in.Nodes[1].Needs, in.Nodes[1].Agent = &Needs{Updaters: []string{"kubelet"}, Formats: []string{"f"}}, AgentInfo{Updaters: []string{"files", "kubelet"}, Formats: []string{"f"}}
		}},
		"an agent that is silent":           {change: func(in *Input) { in.Nodes[1].Heartbeat = now.Add(-SilentAfter(0) - time.Second) }, closed: "agents", message: "node n2 has not been heard"},
		"a worker is not Ready":             {change: func(in *Input) { in.Nodes[1].Ready = false }, closed: "nodes-ready", message: "node n2 is not Ready"},
		"a control plane is not Ready":      {change: func(in *Input) { in.Nodes[0].Ready = false }, closed: "nodes-ready,control-plane", message: "0 of 1 control-plane nodes are Ready"},
		"the pin set is without the bundle": {change: func(in *Input) { in.Nodes[1].PinSetHasBundle = false }, closed: "images-held", message: "has not received the pin set", waiting: true},
		"no node has images to pin": {change: func(in *Input) {
			for i := range in.Nodes {
				in.Nodes[i].WantPinSet, in.Nodes[i].Loaded = "", nil
			}
		}},
		"room for a snapshot of etcd, and not a byte more": {change: func(in *Input) { in.Nodes[0].Snapshot = 1000 }},
		"no room for a snapshot of etcd": {change: func(in *Input) { in.Nodes[0].Snapshot = 1001 }, closed: "space",
			message: "node n1 needs 1001 bytes, 1001 of them for a snapshot of etcd, 1000 are free (file system of state and images)"},
		"a node reports on an older list":    {change: func(in *Input) { in.Nodes[1].Loaded.Content = "pins-0" }, closed: "images-held", message: "has not started to load", waiting: true},
		"an image is held but not pinned":    {change: func(in *Input) { in.Nodes[1].Loaded.ImagesPinned = 8 }, closed: "images-held", message: "node n2 does not hold and pin all of its 9 images", waiting: true},
		"an image is missing":                {change: func(in *Input) { in.Nodes[1].Loaded.ImagesReady = 8 }, closed: "images-held", message: "does not hold", waiting: true},
		"an image of the release is nowhere": {change: func(in *Input) { in.Nodes[0].Loaded.MissingImages = []string{"reg.test/etcd:3.6.6"} }, closed: "images-held", message: "node n1 does not have reg.test/etcd:3.6.6"},
		"a node cannot go on loading": {change: func(in *Input) {
			in.Nodes[1].Loaded.ImagesReady = 8
			in.Nodes[1].Stalled = &model.Blocker{Reason: "PinsIgnored", Message: "node n2: pins are ignored"}
		}, closed: "images-held", message: "pins are ignored"},
		"an old trouble of a node that holds": {change: func(in *Input) { in.Nodes[1].Stalled = &model.Blocker{Reason: "StepFailed"} }},
		"counts of a shorter list do not pass": {change: func(in *Input) {
			h := in.Nodes[1].Loaded
			h.ImagesTotal, h.ImagesReady, h.ImagesPinned = 8, 8, 8
		}, closed: "images-held", message: "does not hold", waiting: true},
		"a payload is missing":         {change: func(in *Input) { in.Nodes[1].Loaded.PayloadsReady = 1 }, closed: "payloads-held", message: "all of its 2 payloads", waiting: true},
		"one file system is too small": {change: func(in *Input) { in.Nodes[1].Loaded.Needed = map[string]int64{"state": 1234} }, closed: "space", message: "node n2 needs 1234 bytes, 1000 are free"},
		"two places share the room":    {change: func(in *Input) { in.Nodes[1].Loaded.Needed = map[string]int64{"state": 600, "images": 600} }, closed: "space", message: "node n2 needs 1200 bytes, 1000 are free (file system of state and images)"},
		"two places on two file systems": {change: func(in *Input) {
			in.Nodes[1].Loaded.Needed = map[string]int64{"state": 600, "images": 600}
			in.Nodes[1].FileSystems[1].ID = "b"
		}},
		"a node outside the plan warns": {change: func(in *Input) { in.Nodes[1] = &Node{Name: "n2", Ready: true} }, message: "node n2 has no refit agent", warning: true},
		"the drain's look ahead warns": {change: func(in *Input) {
			in.DrainWarnings = []model.Blocker{{Reason: "DisruptionBudget", Message: "default/web wants 2 of 2 pods"}}
		}, message: "default/web wants 2 of 2 pods", warning: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := open()
			tc.change(&in)
			r := Decide(in)
			if got := strings.Join(r.Closed, ","); got != tc.closed {
				t.Errorf("closed by %q, want %q: %+v", got, tc.closed, r.Blockers)
			}
			said := r.Blockers
			if tc.warning {
				said = r.Warnings
			}
			if tc.message == "" {
				if len(r.Blockers)+len(r.Warnings) > 0 {
					t.Errorf("nothing to say, but: %+v %+v", r.Blockers, r.Warnings)
				}
				return
			}
			if !has(said, tc.message) {
				t.Errorf("want %q in %+v", tc.message, said)
			}
			if tc.fix != "" && !strings.Contains(said[0].Fix, tc.fix) {
				t.Errorf("want the fix %q in %+v", tc.fix, said)
			}
			if r.Open() != (tc.closed == "") || len(r.Blockers) > 0 && model.NeedsPerson(r.Blockers) == tc.waiting {
				t.Errorf("open %v, blocked %v: %+v", r.Open(), model.NeedsPerson(r.Blockers), r.Blockers)
			}
		})
	}
}

func has(vs []model.Blocker, part string) bool {
	for _, v := range vs {
		if strings.Contains(v.Message, part) {
			return true
		}
	}
	return false
}

// The gate reports every blocker of every node at once, in an order that does not depend
// on the order of the input.
func TestEveryBlockerIsReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := open()
		in.Nodes = nil
		bad := 0
		for i := range rapid.IntRange(1, 10).Draw(t, "nodes") {
			n := ready(fmt.Sprintf("n%d", i), false)
			if rapid.Bool().Draw(t, "missing") {
				n.Loaded.ImagesReady, n.Loaded.Needed = 3, map[string]int64{"state": 5000}
				bad++
			}
			in.Nodes = append(in.Nodes, n)
		}
		r := Decide(in)
		if len(r.Blockers) != 2*bad {
			t.Fatalf("%d nodes without space and images, %d blockers", bad, len(r.Blockers))
		}
		in.Nodes = rapid.Permutation(in.Nodes).Draw(t, "order")
		if fmt.Sprint(Decide(in)) != fmt.Sprint(r) {
			t.Fatal("another order, another answer")
		}
		for _, v := range r.Blockers {
			if v.Reason == "" || v.Object == "" {
				t.Fatalf("a blocker names reason and object: %+v", v)
			}
		}
	})
}
