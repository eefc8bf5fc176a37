package bootimage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage"
)

// One machine tries the image before it is written, and each of its ends is decided.
func TestCanary(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	base := bootimage.Canary{Healthy: 10 * m, Join: 60 * m, MaxFailures: 2}
	runs := func(change func(*bootimage.Canary)) *bootimage.Canary {
		c := base
		c.Started, c.Machine = now.Add(-30*m), "ns/m"
		change(&c)
		return &c
	}
	for name, tc := range map[string]struct {
		canary *bootimage.Canary
		change func(*bootimage.Input)
		want   string // action, reason, outcome
		text   string
	}{
		"none is wanted":                      {nil, nil, "Write BootImageWritten ", "is written"},
		"it starts":                           {&base, nil, "Boot BootImageCanary Runs", "one machine starts from ami-new"},
		"it starts before a window opens":     {&base, func(i *bootimage.Input) { i.Mode, i.WindowOpen = bootimage.Roll, false }, "Boot BootImageCanary Runs", ""},
		"it does not start during an update":  {&base, func(i *bootimage.Input) { i.Running = "ClusterUpdate/u" }, "Leave BootImageUpdateRunning ", "ClusterUpdate/u"},
		"it stays during an update":           {runs(func(*bootimage.Canary) {}), func(i *bootimage.Input) { i.Running = "ClusterUpdate/u" }, "Leave BootImageUpdateRunning Runs", "ClusterUpdate/u"},
		"another source is first":             {&bootimage.Canary{MaxFailures: 2, Before: "md.a"}, nil, "Leave BootImageCanary ", "waits until the canary of MachineSource md.a has passed"},
		"its machine boots":                   {runs(func(*bootimage.Canary) {}), nil, "Leave BootImageCanary Runs", "ns/m starts from ami-new"},
		"its machine is not Ready in time":    {runs(func(c *bootimage.Canary) { c.Started = now.Add(-60 * m) }), nil, "Leave BootImageCanary Failed", "(1 of 2): machine ns/m was not Ready 1h0m0s after its start"},
		"there is no machine in time":         {runs(func(c *bootimage.Canary) { c.Started, c.Machine = now.Add(-60*m), "" }), nil, "Leave BootImageCanary Failed", "no machine was created"},
		"its machines cannot be listed":       {runs(func(c *bootimage.Canary) { c.Started, c.Unread = now.Add(-600*m), "forbidden" }), nil, "Leave BootImageCanary Runs", "cannot be observed: forbidden"},
		"it is Ready for too short":           {runs(func(c *bootimage.Canary) { c.ReadySince = now.Add(time.Second - 10*m) }), nil, "Leave BootImageCanary Runs", "is Ready; the canary passes at"},
		"it is Ready for long enough":         {runs(func(c *bootimage.Canary) { c.ReadySince = now.Add(-10 * m) }), nil, "Leave BootImageCanary Passed", "refit writes the image next"},
		"it is Ready late, then long enough":  {runs(func(c *bootimage.Canary) { c.Started, c.ReadySince = now.Add(-90*m), now.Add(-11*m) }), nil, "Leave BootImageCanary Passed", ""},
		"health checks of its pool fail":      {runs(func(c *bootimage.Canary) { c.ReadySince, c.Unhealthy = now.Add(-10*m), "a is not true" }), nil, "Leave BootImageCanary Runs", "it passes when the health checks of its pool pass"},
		"they fail for too long":              {runs(func(c *bootimage.Canary) { c.ReadySince, c.Unhealthy = now.Add(-70*m), "a is not true" }), nil, "Leave BootImageCanary Failed", "did not pass within 1h0m0s: a is not true"},
		"they fail for nearly too long":       {runs(func(c *bootimage.Canary) { c.ReadySince, c.Unhealthy = now.Add(time.Second-70*m), "a is not true" }), nil, "Leave BootImageCanary Runs", ""},
		"it is Ready, and refused":            {runs(func(c *bootimage.Canary) { c.ReadySince, c.Failed = now.Add(-20*m), "too old" }), nil, "Leave BootImageCanary Failed", "ns/m: too old"},
		"it is Ready from another image":      {runs(func(c *bootimage.Canary) { c.ReadySince, c.Installed = now.Add(-20*m), "9.2.20240101-0" }), nil, "Leave BootImageCanary Failed", "installed from OS 9.2.20240101-0 instead of"},
		"the second machine fails":            {runs(func(c *bootimage.Canary) { c.Failures, c.Failed = []string{"a"}, "too old" }), nil, "Leave BootImageCanaryFailed Failed", "2 canaries for ami-new (9.6.20251023-0) failed, so refit does not write it: machine ns/m: too old"},
		"two machines have failed":            {&bootimage.Canary{MaxFailures: 2, Failures: []string{"a", "b"}}, nil, "Leave BootImageCanaryFailed ", "failed, so refit does not write it: b"},
		"it has passed":                       {&bootimage.Canary{MaxFailures: 2, Passed: true}, nil, "Write BootImageWritten ", ""},
		"a person accepted it after failures": {&bootimage.Canary{MaxFailures: 2, Passed: true, Failures: []string{"a", "b"}}, nil, "Write BootImageWritten ", ""},
		"a rollback needs none":               {&base, func(i *bootimage.Input) { i.Rollback = &bootimage.Rollback{By: "ann", Rejected: i.Current} }, "Write BootImageWritten ", ""},
		"nothing differs":                     {&base, func(i *bootimage.Input) { i.Same = true }, "Leave AsExpected ", ""},
		"the policy refuses the image":        {&base, func(i *bootimage.Input) { i.Refused = "no disks" }, "Leave BootImageRefused ", ""},
		"writing would replace machines":      {&base, func(i *bootimage.Input) { i.Effect = "Replaces" }, "Leave WouldReplaceMachines ", ""},
	} {
		d := bootimage.Decide(pool(func(i *bootimage.Input) {
			i.Canary = tc.canary
			if tc.change != nil {
				tc.change(i)
			}
		}))
		if got := d.Action + " " + d.Reason + " " + d.Canary; got != tc.want || !strings.Contains(d.Message, tc.text) || (d.Canary == bootimage.CanaryFailed) != (d.CanaryFailure != "") {
			t.Errorf("%s: %q %+v, want %q", name, got, d, tc.want)
		}
	}
}

// The copy makes one machine, keeps what machines need, and shares no machine with the original.
func TestCanaryCopy(t *testing.T) {
	t.Parallel()
	manager := func() map[string]any {
		return map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
			"metadata": map[string]any{"name": "w", "namespace": "n", "uid": "u1", "labels": map[string]any{"cluster.x-k8s.io/cluster-name": "c", "argocd.argoproj.io/instance": "x"},
				"annotations": map[string]any{"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "9"}, "resourceVersion": "7"},
			"spec": map[string]any{"replicas": int64(3), "paused": true, "clusterName": "c",
				"selector": map[string]any{"matchLabels": map[string]any{"cluster.x-k8s.io/cluster-name": "c", "pool": "w"}},
				"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"cluster.x-k8s.io/cluster-name": "c", "pool": "w", "node-role.kubernetes.io/infra": ""}}, "spec": map[string]any{"x": "y"}}}}
	}
	name := bootimage.CanaryName("w", "s1", bootimage.Image{Text: "ami"}, "0")
	for i, other := range []string{bootimage.CanaryName("w", "s1", bootimage.Image{Text: "ami"}, "1"), bootimage.CanaryName("w", "s2", bootimage.Image{Text: "ami"}, "0"), bootimage.CanaryName("w", "s1", bootimage.Image{Text: "b"}, "0")} {
		if other == name {
			t.Errorf("name %d is not its own: %s", i, name)
		}
	}
	if long := bootimage.CanaryName(strings.Repeat("a", 63), "s", bootimage.Image{}, ""); len(long) > 61 {
		t.Errorf("%s has %d characters", long, len(long))
	}
	got, err := bootimage.CanaryCopy(manager(), "s1", name)
	if err != nil {
		t.Fatal(err)
	}
	at := func(keys ...string) any {
		var v any = got
		for _, k := range keys {
			m, _ := v.(map[string]any)
			v = m[k]
		}
		return v
	}
	for want, keys := range map[any][][]string{
		int64(1): {{"spec", "replicas"}},
		name:     {{"metadata", "name"}, {"spec", "selector", "matchLabels", "pool"}, {"spec", "template", "metadata", "labels", "pool"}, {"spec", "selector", "matchLabels", "refit.dev/boot-image-canary"}, {"spec", "template", "metadata", "labels", "refit.dev/boot-image-canary"}},
		"c":      {{"metadata", "labels", "cluster.x-k8s.io/cluster-name"}, {"spec", "selector", "matchLabels", "cluster.x-k8s.io/cluster-name"}},
		"":       {{"spec", "template", "metadata", "labels", "node-role.kubernetes.io/infra"}},
		"y":      {{"spec", "template", "spec", "x"}},
		nil:      {{"spec", "paused"}, {"metadata", "annotations"}, {"metadata", "resourceVersion"}, {"metadata", "labels", "argocd.argoproj.io/instance"}, {"metadata", "uid"}},
	} {
		for _, k := range keys {
			if v := at(k...); v != want {
				t.Errorf("%v: %v, want %v", k, v, want)
			}
		}
	}
	if source, ok := bootimage.CanarySource(got); source != "s1" || !ok {
		t.Errorf("%q %t", source, ok)
	}
	if _, ok := bootimage.CanarySource(manager()); ok {
		t.Error("the original is no canary")
	}
	selector := func(o map[string]any) map[string]any {
		return o["spec"].(map[string]any)["selector"].(map[string]any)
	}
	for name, change := range map[string]func(map[string]any){
		"matchExpressions":         func(o map[string]any) { selector(o)["matchExpressions"] = []any{map[string]any{"key": "a"}} },
		"no label of its own":      func(o map[string]any) { delete(selector(o)["matchLabels"].(map[string]any), "pool") },
		"no spec.selector or no s": func(o map[string]any) { delete(o["spec"].(map[string]any), "template") },
	} {
		o := manager()
		change(o)
		if _, err := bootimage.CanaryCopy(o, "s", "n"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
