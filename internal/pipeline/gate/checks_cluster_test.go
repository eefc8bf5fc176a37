package gate

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

const day = 24 * time.Hour

// Each check over the cluster, alone.
func TestClusterChecks(t *testing.T) {
	hook := Webhook{Configuration: "ValidatingWebhookConfiguration/policy", Name: "pods.policy.test", Service: "policy/hook", Nodes: []string{"n2"}, OwnPods: true}
	cases := map[string]struct {
		change  func(*Input)
		closed  string
		message string
		warning bool
		waiting bool
	}{
		"a node of the plan is short of disk":  {change: func(in *Input) { in.Nodes[1].Pressure = []string{"DiskPressure"} }, closed: "pressure", message: "node n2 reports DiskPressure"},
		"a node outside the plan is short":     {change: func(in *Input) { in.Nodes[1].Pressure, in.Nodes[1].InPlan = []string{"PIDPressure"}, false }, message: "node n2 reports PIDPressure", warning: true},
		"a cordon by another actor":            {change: func(in *Input) { in.Nodes[1].ForeignCordon = true }, message: "node n2 was cordoned, but not by refit", warning: true},
		"a cordon outside the plan is ignored": {change: func(in *Input) { in.Nodes[1].ForeignCordon, in.Nodes[1].InPlan = true, false }},
		"an etcd member is not healthy":        {change: func(in *Input) { in.Nodes[0].Etcd.Healthy, in.Nodes[0].Etcd.Message = false, "NOSPACE" }, closed: "quorum", message: "etcd on node n1 is not healthy: NOSPACE"},
		"also one that the plan does not move": {change: func(in *Input) { in.Nodes[0].Etcd.Healthy, in.Nodes[0].InPlan = false, false },
			closed: "quorum", message: "etcd on node n1 is not healthy"},
		"two members bear no restart":         {change: func(in *Input) { in.Nodes[1].Etcd = &Etcd{Healthy: true} }, message: "etcd has two members", warning: true},
		"etcd is filling up":                  {change: func(in *Input) { in.Nodes[0].Etcd.Size = 1500 }, message: "70 percent of its quota of 2000 bytes", warning: true},
		"etcd is nearly full":                 {change: func(in *Input) { in.Nodes[0].Etcd.Size = 1800 }, closed: "etcd-space", message: "90 percent of its quota"},
		"a quota that is unknown is no quota": {change: func(in *Input) { in.Nodes[0].Etcd.Size, in.Nodes[0].Etcd.Quota = 1800, 0 }},
		"a certificate ends before the update would": {change: func(in *Input) {
			in.Nodes[0].Certificates = []Certificate{{"apiserver.crt", now.Add(time.Hour)}}
		}, closed: "certificates", message: "certificate apiserver.crt of node n1 ends on 2026-11-20 12:00Z, before the update would"},
		"one that has ended long ago": {change: func(in *Input) {
			in.Nodes[1].Certificates = []Certificate{{"kubelet-client-current.pem", now.Add(-day)}}
		}, closed: "certificates", message: "kubelet-client-current.pem of node n2"},
		"one that ends within 30 days":                 {change: func(in *Input) { in.Nodes[0].Certificates = []Certificate{{"apiserver.crt", now.Add(29 * day)}} }, message: "apiserver.crt of node n1", warning: true},
		"one with more than 30 days is silent":         {change: func(in *Input) { in.Nodes[0].Certificates = []Certificate{{"apiserver.crt", now.Add(31 * day)}} }},
		"a clock ten seconds ahead":                    {change: func(in *Input) { in.Nodes[1].Skew, in.Nodes[1].SkewKnown = 10*time.Second, true }, message: "clock of node n2 is more than 10s ahead of", warning: true},
		"a clock minutes behind":                       {change: func(in *Input) { in.Nodes[1].Skew, in.Nodes[1].SkewKnown = -3*time.Minute, true }, closed: "clock", message: "more than 2m0s behind"},
		"a clock that was not measured":                {change: func(in *Input) { in.Nodes[1].Skew = time.Hour }},
		"a boot image that cannot join the next minor": {change: func(in *Input) { in.BootImages = []BootImage{{"machinedeployment.a.b", "too old", true}} }, closed: "boot-images", message: "new machines may not join after the update: too old"},
		"a boot image that is too old for a patch too": {change: func(in *Input) { in.BootImages = []BootImage{{"machinedeployment.a.b", "too old", false}} }, message: "may not join", warning: true},
		"a policy that was not evaluated yet": {change: func(in *Input) {
			in.BootImageGaps = []BootImageGap{{Object: "BootImagePolicy/p", Reason: "BootImageNotChecked", Message: "not evaluated yet", Fix: "wait", Blocks: true}}
		}, closed: "boot-images", message: "not evaluated yet"},
		"a policy that was deleted, before a patch": {change: func(in *Input) {
			in.BootImageGaps = []BootImageGap{{Object: "MachineSource/s", Reason: "BootImagePolicyDeleted", Message: "policy p was deleted", Fix: "decide"}}
		}, message: "policy p was deleted", warning: true},
		"an API that the target removes":       {change: func(in *Input) { in.RemovedAPIs = []RemovedAPI{{"flow.test", "v1beta3", "flows", "status", "1.36"}} }, closed: "removed-apis", message: "flows/status of flow.test/v1beta3, which Kubernetes 1.36 and later do not serve"},
		"an API that goes later":               {change: func(in *Input) { in.RemovedAPIs = []RemovedAPI{{"", "v1", "componentstatuses", "", "1.37"}} }},
		"an API whose end is not known":        {change: func(in *Input) { in.RemovedAPIs = []RemovedAPI{{"", "v1", "componentstatuses", "", ""}} }},
		"a webhook asked about its own pods":   {change: func(in *Input) { in.Webhooks = []Webhook{hook} }, closed: "webhooks", message: "all its backends (policy/hook) are on node n2, which is drained; it is asked about their own pods too"},
		"a webhook about other things only":    {change: func(in *Input) { h := hook; h.OwnPods = false; in.Webhooks = []Webhook{h} }, message: "all its backends", warning: true},
		"a webhook with backends on two nodes": {change: func(in *Input) { h := hook; h.Nodes = []string{"n2", "n3"}; in.Webhooks = []Webhook{h} }},
		"a webhook on a node that stays as is": {change: func(in *Input) { in.Nodes[1].Drained = false; in.Webhooks = []Webhook{hook} }},
		"a vital webhook that has no backend":  {change: func(in *Input) { h := hook; h.Nodes, h.OwnPods, h.Vital = nil, false, true; in.Webhooks = []Webhook{h} }, closed: "webhooks", message: "no ready backend"},
		"what a node needs asks a registry": {change: func(in *Input) {
			in.Images = []ImageRisk{{Rule: "T02", Object: "DaemonSet/kube-system/cni", Container: "agent", Image: "a:1", Always: true, Message: "policy Always", Fix: "x"}}
		}, closed: "image-references", message: "DaemonSet/kube-system/cni, container agent, image a:1: policy Always (lint rule T02)"},
		"what a node needs may start as another image": {change: func(in *Input) {
			in.Images = []ImageRisk{{Rule: "T01", Object: "DaemonSet/kube-system/cni", Container: "agent", Image: "a:latest", Message: "it moves", Fix: "x"}}
		}, message: "it moves", warning: true},
		"every start asks a registry":               {change: func(in *Input) { in.Pulls.AlwaysAdmission = []string{"kube-apiserver-n1"} }, closed: "image-pulls", message: "AlwaysPullImages"},
		"the kubelet asks a registry":               {change: func(in *Input) { in.Nodes[1].PullVerification = "AlwaysVerify" }, closed: "image-pulls", message: "kubelet of node n2"},
		"the kubelet's default asks none":           {change: func(in *Input) { in.Nodes[1].PullVerification = "NeverVerifyPreloadedImages" }},
		"pods that always pull":                     {change: func(in *Input) { in.Pulls.AlwaysPods, in.Pulls.Always = 7, []string{"a/b"} }, message: "7 pods have imagePullPolicy Always", warning: true},
		"a fact that is being read is waited for":   {change: func(in *Input) { in.Pending = map[string]bool{"webhooks": true} }, closed: "webhooks", message: "waits until its facts are read", waiting: true},
		"a fact that could not be read is reported": {change: func(in *Input) { in.Unknown = map[string]string{"removed-apis": "GET /metrics: 403"} }, message: "could not be asked in full: GET /metrics: 403", warning: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := open()
			in.TargetKubernetes, in.Lasts = "v1.36.3", 2*time.Hour
			in.Nodes[0].Etcd = &Etcd{Healthy: true, Size: 100, Quota: 2000}
			in.Nodes[1].Drained = true
			tc.change(&in)
			r := Decide(in)
			if got := strings.Join(r.Closed, ","); got != tc.closed {
				t.Fatalf("closed by %q, want %q: %+v", got, tc.closed, r.Blockers)
			}
			said := r.Blockers
			if tc.warning {
				said = r.Warnings
			}
			if len(r.Blockers) > 0 && model.NeedsPerson(r.Blockers) == tc.waiting {
				t.Errorf("a person must act: %v", !tc.waiting)
			}
			switch {
			case tc.message == "" && len(r.Blockers)+len(r.Warnings) > 0:
				t.Errorf("nothing to say, but: %+v %+v", r.Blockers, r.Warnings)
			case tc.message != "" && !has(said, tc.message):
				t.Errorf("want %q in %+v", tc.message, said)
			}
			for _, v := range append(r.Blockers, r.Warnings...) {
				if v.Reason == "" || v.Fix == "" && v.Reason != reasonFactUnknown {
					t.Errorf("reason and fix: %+v", v)
				}
			}
		})
	}
}

// An accepted risk turns its own check's "no" into a warning until its end, and
// nothing else.
func TestAcceptedRisks(t *testing.T) {
	bad := func() Input {
		in := open()
		in.Nodes[1].Pressure = []string{"DiskPressure"}
		in.Nodes[0].Etcd = &Etcd{Message: "no leader"}
		return in
	}
	cases := map[string]struct {
		risk   Risk
		closed string
		state  string
		said   string
	}{
		"in time":                          {Risk{Check: "pressure", Reason: "logs are cleaned tonight", By: "ada", Until: now.Add(time.Hour)}, "quorum", RiskInForce, "accepted until 2026-11-20T12:00:00Z by ada (logs are cleaned tonight): node n2 reports DiskPressure"},
		"at its end it counts again":       {Risk{Check: "pressure", Reason: "x", Until: now}, "quorum,pressure", RiskExpired, "the risk accepted for check pressure ended"},
		"a quorum can be accepted by none": {Risk{Check: "quorum", Reason: "x", Until: now.Add(time.Hour)}, "quorum,pressure", RiskCannotBeAccepted, "counts for nothing: this update cannot restore"},
		"a name that no check has":         {Risk{Check: "presure", Reason: "x", Until: now.Add(time.Hour)}, "quorum,pressure", RiskUnknownCheck, `check "presure", which the gate does not have`},
		"a check that says yes":            {Risk{Check: "clock", Reason: "x", Until: now.Add(time.Hour)}, "quorum,pressure", RiskNotNeeded, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := bad()
			in.Accepted = []Risk{tc.risk}
			r := Decide(in)
			if got := strings.Join(r.Closed, ","); got != tc.closed {
				t.Errorf("closed by %q, want %q", got, tc.closed)
			}
			if len(r.Risks) != 1 || r.Risks[0].State != tc.state {
				t.Errorf("risks %+v, want %s", r.Risks, tc.state)
			}
			if tc.said != "" && !has(r.Warnings, tc.said) {
				t.Errorf("want %q in %+v", tc.said, r.Warnings)
			}
		})
	}
}

// For any accepted risks: a check that cannot be accepted stays closed, an expired risk
// accepts nothing, and every blocker is in one of the two lists.
func TestNothingIsAcceptedThatCannotBe(t *testing.T) {
	names := []string{"nonsense"}
	for _, c := range Checks() {
		names = append(names, c.Name)
	}
	rapid.Check(t, func(t *rapid.T) {
		in := open()
		in.Approved = rapid.Bool().Draw(t, "approved")
		in.Running = rapid.SampledFrom([]string{"", "other"}).Draw(t, "running")
		in.Nodes[0].Ready = rapid.Bool().Draw(t, "ready")
		in.Nodes[0].Etcd = &Etcd{Healthy: rapid.Bool().Draw(t, "etcd"), Size: 95, Quota: 100}
		in.Nodes[1].Loaded.ImagesPinned = int32(rapid.IntRange(8, 9).Draw(t, "pinned"))
		in.Nodes[1].Pressure = []string{"DiskPressure"}
		in.Pulls.AlwaysAdmission = []string{"kube-apiserver-n1"}
		plain := Decide(in)
		for range rapid.IntRange(0, 8).Draw(t, "risks") {
			in.Accepted = append(in.Accepted, Risk{Check: rapid.SampledFrom(names).Draw(t, "check"), Reason: "accepted by ops", Until: now.Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "hours")) * time.Hour)})
		}
		r := Decide(in)
		covered := 0
		for _, o := range r.Risks {
			covered += o.Covers
			if o.State == RiskInForce && !o.Until.After(now) {
				t.Fatalf("%+v has ended and is in force", o)
			}
		}
		for _, a := range plain.Answers {
			c, _ := FindCheck(a.Name)
			now := answer(r, a.Name)
			if a.Result == Closed && c.NeverAcceptable != "" && now != Closed {
				t.Fatalf("%s can never be accepted and is %s", a.Name, now)
			}
			if a.Result != Closed && now == Accepted {
				t.Fatalf("%s says yes and is accepted", a.Name)
			}
		}
		if len(r.Blockers)+covered != len(plain.Blockers) {
			t.Fatalf("%d blockers became %d and %d accepted", len(plain.Blockers), len(r.Blockers), covered)
		}
	})
}

func answer(r Result, check string) string {
	for _, a := range r.Answers {
		if a.Name == check {
			return a.Result
		}
	}
	return "not asked"
}

// The API refuses to accept what the gate never lets be accepted: the two lists
// are one.
func TestTheAPIRefusesWhatCannotBeAccepted(t *testing.T) {
	b, err := os.ReadFile("../../../api/v1alpha1/clusterupdate_gate.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "!(self.check in [")
	list, _, ok2 := strings.Cut(rest, "])")
	if !ok || !ok2 {
		t.Fatal("the rule of AcceptedRisk is not found")
	}
	want := []string{}
	seen := map[string]bool{}
	for _, c := range Checks() {
		if c.NeverAcceptable != "" {
			want = append(want, "'"+c.Name+"'")
		}
		if seen[c.Name] || c.Question == "" || c.Evaluate == nil {
			t.Errorf("check %q is registered twice or incomplete", c.Name)
		}
		seen[c.Name] = true
	}
	if diff := cmp.Diff(strings.Join(want, ","), list); diff != "" {
		t.Errorf("API and gate differ (-gate +api):\n%s", diff)
	}
}

// Every check answers, in the order of the list, however much is wrong.
func TestEveryCheckAnswers(t *testing.T) {
	in := open()
	in.Approved, in.PlanBlockers = false, []model.Blocker{{Reason: "VersionSkew", Message: "skew"}}
	r := Decide(in)
	var got, want []string
	for _, a := range r.Answers {
		got = append(got, fmt.Sprint(a.Name))
	}
	for _, c := range Checks() {
		want = append(want, c.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if answer(r, "plan") != Closed || answer(r, "clock") != Passed {
		t.Errorf("%+v", r.Answers)
	}
}
