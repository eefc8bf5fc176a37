//go:build linux

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// shell runs refit against a cluster.
type shell struct {
	t      *testing.T
	config string
}

func (s shell) run(args ...string) (out string, code int) {
	s.t.Helper()
	var buf bytes.Buffer
	o := &options{Access: inputs.Access{Kubeconfig: s.config, Out: &buf, Err: &buf}}
	root := rootOf("refit", o)
	root.SetOut(&buf)
	root.SetErr(&buf)
	root.SetArgs(append(args, "--kubeconfig", s.config))
	err := root.ExecuteContext(s.t.Context())
	if err != nil {
		buf.WriteString(err.Error())
	}
	return buf.String(), console.ExitCode(err)
}

func (s shell) must(code int, words []string, args ...string) string {
	s.t.Helper()
	out, got := s.run(args...)
	if got != code {
		s.t.Fatalf("refit %s: exit %d, want %d: %s", strings.Join(args, " "), got, code, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			s.t.Fatalf("refit %s does not say %q: %s", strings.Join(args, " "), w, out)
		}
	}
	return out
}

// What a person does with a track, and how what it approved becomes a bundle that
// is complete, whose difference is reported in one sentence.
func TestTracksForPeople(t *testing.T) {
	cfg := apitest.Start(t)
	reg := registrytest.Start(t)
	s := shell{t, kubeconfig(t, cfg)}
	admin, err := (&inputs.Access{Kubeconfig: s.config}).Client()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := reg.Push("shop/app", registrytest.Image{Version: "2.6.2", Layers: []string{"one"}}, "2.6.2-rev1-b5.1")
	b := reg.Push("shop/app", registrytest.Image{Version: "2.6.2", Layers: []string{"two"}, Labels: map[string]string{"dev.refit.severity": "security"}}, "2.6.2-rev1-b5.2")
	reg.Push("shop/side", registrytest.Image{Version: "1"}, "1")
	must(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))
	labels := map[string]string{"app": "app"}
	must(admin.Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: reg.Ref("shop/app:2.6.2-rev1")}, {Name: "side", Image: reg.Ref("shop/side:1")}}}}}}))
	o := &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: v1alpha1.ImageTrackSpec{Repository: reg.Ref("shop/app"),
		Follow: v1alpha1.TrackFollow{Tag: "2.6.2-rev1"}, Targets: []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: "shop", Name: "app"}}}}
	must(admin.Create(ctx, o))
	s.must(console.ExitBlocked, []string{"has no approved image"}, "bundle", "create", "--from-tracks", "--output", "x", "--unsigned")

	status := func(approved, long string, change func(*v1alpha1.ImageTrackStatus)) {
		t.Helper()
		must(admin.Get(ctx, client.ObjectKeyFromObject(o), o))
		o.Status = v1alpha1.ImageTrackStatus{Serial: 2, Approved: &v1alpha1.TrackedImage{Digest: approved, Tag: "2.6.2-rev1", LongTag: long},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: "True", Reason: v1alpha1.ReasonImageNeedsApproval, Message: "b5.2 waits", LastTransitionTime: metav1.Now()}}}
		change(&o.Status)
		must(admin.Status().Update(ctx, o))
	}
	candidates := func(st *v1alpha1.ImageTrackStatus) {
		st.Candidates = []v1alpha1.TrackCandidate{
			{Digest: b, Tag: "2.6.2-rev1", LongTag: "2.6.2-rev1-b5.2", Class: v1alpha1.ClassSecurity, Decision: v1alpha1.DecisionApproval, Why: "build 5.2 is above 5.1", Serial: 2},
			{Digest: "sha256:" + strings.Repeat("c", 64), Tag: "2.6.3-rev1", LongTag: "2.6.3-rev1-b1.1", Class: v1alpha1.ClassTagVersionMismatch, Decision: v1alpha1.DecisionBlocked, Why: "it says 2.6.4 inside", Serial: 1},
			{Digest: "sha256:" + strings.Repeat("d", 64), Tag: "2.6.1-rev1", LongTag: "2.6.1-rev1-b1.1", Class: v1alpha1.ClassBackwards, Decision: v1alpha1.DecisionBlocked, Why: "older", Serial: 1},
		}
		st.Running = []v1alpha1.RunningDigest{{Digest: a, LongTag: "2.6.2-rev1-b5.1", Pods: 2, Nodes: []string{"n1", "n2"}}}
	}
	status(a, "2.6.2-rev1-b5.1", candidates)
	s.must(console.ExitOK, []string{"TRACK", "2.6.2-rev1-b5.2", "SecurityRebuild", "b5.2 waits"}, "tags", "status")
	s.must(console.ExitOK, []string{a, b, "2 pods on n1, n2", "it says 2.6.4 inside"}, "tags", "status", "app")
	var v struct {
		Kind   string
		Tracks []struct {
			Name   string
			Ready  bool
			Status v1alpha1.ImageTrackStatus
		}
	}
	must(json.Unmarshal([]byte(s.must(console.ExitOK, nil, "tags", "status", "-o", "json")), &v))
	if v.Kind != "TagStatus" || len(v.Tracks) != 1 || !v.Tracks[0].Ready || v.Tracks[0].Status.Candidates[0].Digest != b {
		t.Fatalf("%+v", v)
	}
	s.must(console.ExitUsage, []string{"there are: app"}, "tags", "status", "nobody")

	s.must(console.ExitBlocked, []string{"2.6.4 inside"}, "tags", "approve", "app", "2.6.3-rev1-b1.1")
	s.must(console.ExitBlocked, []string{"--any-order"}, "tags", "approve", "app", "2.6.1-rev1-b1.1")
	s.must(console.ExitUsage, []string{"no candidate", "2.6.2-rev1-b5.2"}, "tags", "approve", "app", "9.9.9")
	s.must(console.ExitOK, []string{b}, "tags", "reject", "app", "2.6.2-rev1-b5.2", "--reason", "not today")
	must(admin.Get(ctx, client.ObjectKeyFromObject(o), o))
	if len(o.Spec.Refused) != 1 || o.Spec.Refused[0].Reason != "not today" {
		t.Fatalf("%+v", o.Spec)
	}
	s.must(console.ExitOK, []string{b}, "tags", "approve", "app", "2.6.2-rev1-b5.2")
	must(admin.Get(ctx, client.ObjectKeyFromObject(o), o))
	if len(o.Spec.Refused) != 0 || len(o.Spec.Approvals) != 1 || o.Spec.Approvals[0].Digest != b || o.Spec.Approvals[0].Serial != 2 || o.Spec.Approvals[0].ApprovedBy == "" {
		t.Fatalf("%+v", o.Spec)
	}
	s.must(console.ExitBlocked, []string{"has no earlier image"}, "tags", "rollback", "app")

	t.Log("a static pod that has failed is tried again, and the records are shown")
	s.must(console.ExitBlocked, []string{"has failed"}, "tags", "retry", "app")
	status(a, "2.6.2-rev1-b5.1", func(st *v1alpha1.ImageTrackStatus) {
		candidates(st)
		st.Workloads = []v1alpha1.TrackedWorkload{{Workload: "StaticPod/kube-system/proxy", State: v1alpha1.TargetBlocked, Message: "node n2 failed"}}
		st.Releases = []v1alpha1.TrackRelease{{Digest: a, LongTag: "2.6.2-rev1-b5.1", From: b, FromLongTag: "2.6.2-rev1-b5.2", Class: v1alpha1.ClassBackwards, Actor: "ann: slow",
			TakenAt: metav1.Now(), Result: v1alpha1.ReleaseHalted, Message: "node n2 failed"}}
	})
	s.must(console.ExitOK, []string{"release ", "after 2.6.2-rev1-b5.2 " + b, "Backwards, by ann: slow: Halted, node n2 failed"}, "tags", "status", "app")
	s.must(console.ExitOK, []string{a}, "tags", "retry", "app")
	must(admin.Get(ctx, client.ObjectKeyFromObject(o), o))
	if o.Spec.Retry != 1 {
		t.Fatalf("%+v", o.Spec)
	}

	dir := t.TempDir()
	one, two := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	side := "docker://" + reg.Ref("shop/side:1")
	out := s.must(console.ExitBlocked, []string{"1 image of the tracks' workloads missing", "Deployment/shop/app needs " + reg.Ref("shop/side:1")}, "bundle", "create", "--from-tracks", "--output", one, "--unsigned")
	if strings.Contains(out, "shop/app:2.6.2-rev1-b5.2") {
		t.Fatalf("what is not approved is taken: %s", out)
	}
	s.must(console.ExitOK, nil, "bundle", "create", "--from-tracks", "--output", one, "--unsigned", side)
	s.must(console.ExitOK, []string{reg.Ref("shop/app:2.6.2-rev1 "), reg.Ref("shop/app:2.6.2-rev1-b5.1 "), a}, "bundle", "inspect", one, "-o", "wide")

	status(b, "2.6.2-rev1-b5.2", func(st *v1alpha1.ImageTrackStatus) {
		st.History = []v1alpha1.TrackedImage{{Digest: a, Tag: "2.6.2-rev1", LongTag: "2.6.2-rev1-b5.1"}}
	})
	s.must(console.ExitOK, nil, "bundle", "create", "--output", two, "--unsigned", "tracks:", side)
	s.must(console.ExitOK, []string{"images: 1 rebuild, 1 of them security, 1 same"}, "bundle", "diff", one, two)
	s.must(console.ExitOK, []string{"images: 1 older than before, 1 same"}, "bundle", "diff", two, one)
	s.must(console.ExitOK, []string{"5.1"}, "bundle", "create", "--output", filepath.Join(dir, "3"), "--unsigned", "--with-rollback", "--from-tracks", side, "-o", "json")

	t.Log("a file of tracks will do where the cluster cannot be reached")
	file := filepath.Join(dir, "tracks.json")
	o.TypeMeta = metav1.TypeMeta{APIVersion: "refit.dev/v1alpha1", Kind: "ImageTrack"}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{o}})
	must(err)
	must(os.WriteFile(file, data, 0o600))
	s.must(console.ExitOK, []string{"are not checked"}, "bundle", "create", "--output", filepath.Join(dir, "4"), "--unsigned", "tracks:"+file)

	s.must(console.ExitOK, []string{a}, "tags", "rollback", "app", "--reason", "slow")
	must(admin.Get(ctx, client.ObjectKeyFromObject(o), o))
	if len(o.Spec.Refused) != 1 || o.Spec.Refused[0].Digest != b || len(o.Spec.Approvals) != 0 {
		t.Fatalf("%+v", o.Spec)
	}
	must(admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "track-app"}, Data: map[string]string{"deployment.shop.app.yaml": "spec: {}\n"}}))
	s.must(console.ExitOK, []string{"# deployment.shop.app\nspec: {}"}, "tags", "status", "app", "--patch")
}
