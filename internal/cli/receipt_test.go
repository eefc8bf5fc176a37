package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

// plannedUpdate makes an update that is done, with a plan of one node. With a digest the plan is
// another one than the update expects.
func (p *person) plannedUpdate(name, digit, digest string, finished time.Time) {
	p.t.Helper()
	ctx := context.Background()
	plan := model.Plan{Version: model.PlanVersion, Target: model.Target{Name: "demo", Version: "1.36.3", Kubernetes: "v1.36.3"}, Nodes: []model.NodePlan{{Node: "w1", From: "v1.35.4", To: "v1.36.3", Steps: []model.Step{}}}}
	c := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(v1alpha1.ContentPlan, string(plan.JSON()))}, Type: v1alpha1.ContentPlan, Data: string(plan.JSON())}
	if err := p.controller.Create(ctx, c); client.IgnoreAlreadyExists(err) != nil {
		p.t.Fatal(err)
	}
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate, Bundle: "sha256:" + strings.Repeat(digit, 64), PlanDigest: cmp.Or(digest, plan.Digest())}}
	if err := p.Create(ctx, u); err != nil {
		p.t.Fatal(err)
	}
	begin, end := metav1.NewTime(finished.Add(-time.Hour)), metav1.NewTime(finished)
	u.Status = v1alpha1.ClusterUpdateStatus{Phase: v1alpha1.PhaseDone, Plan: c.Name, PlanDigest: u.Spec.PlanDigest, NodesDone: 1, NodesTotal: 1, StartedAt: &begin, FinishedAt: &end}
	if err := p.controller.Status().Update(ctx, u); err != nil {
		p.t.Fatal(err)
	}
}

func readReceipt(t *testing.T, data string) explain.Receipt {
	t.Helper()
	_, data, ok := strings.Cut(data, "{") // notes on standard error come first
	var r explain.Receipt
	if err := json.Unmarshal([]byte("{"+data), &r); err != nil || !ok {
		t.Fatalf("%v: %s", err, data)
	}
	return r
}

// A site's receipt goes to a directory, is signed, and is what the office adds up. An archive for
// support gives the same receipt.
func TestReceiptOfACluster(t *testing.T) {
	p := newPerson(t)
	ctx := context.Background()
	dir, keys := t.TempDir(), filepath.Join(t.TempDir(), "keys")
	p.types(console.ExitUsage, "receipt") // there is no update
	w1 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}
	if err := p.Create(ctx, w1); err != nil {
		t.Fatal(err)
	}
	w1.Status.NodeInfo.KubeletVersion = "v1.36.3"
	if err := p.Status().Update(ctx, w1); err != nil {
		t.Fatal(err)
	}
	day := time.Now().Truncate(time.Second).Add(-2 * time.Hour)
	p.plannedUpdate("a", "a", "", day)
	p.update("b", "b", v1alpha1.PhaseUpdating, -time.Hour, 0)
	p.types(console.ExitOK, "keys", "generate", "--out", keys)
	said := p.types(console.ExitOK, "receipt", "--output", dir, "--key", filepath.Join(keys, "refit.key"), "--site", "north", "--contact", "Ann, +1 555 0100")
	note, said, _ := strings.Cut(said, "\n")
	file, rest, _ := strings.Cut(said, ": ")
	if note != "update b is in phase Updating: refit receipt b is about it" || !strings.Contains(rest, "update a is Done, 1 of 1 node done. The receipt is signed with key ") || filepath.Dir(file) != dir {
		t.Errorf("%s\n%s", note, said)
	}
	var system corev1.Namespace
	if err := p.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system); err != nil {
		t.Fatal(err)
	}
	var all explain.Receipts
	pub := filepath.Join(keys, "refit.pub")
	if err := json.Unmarshal([]byte(p.types(console.ExitOK, "receipts", dir, "--pub", pub, "-o", "json")), &all); err != nil || len(all.Sites) != 1 || !all.Verified {
		t.Fatalf("%v: %+v", err, all)
	}
	r := all.Sites[0].Receipt
	if r.Cluster != string(system.UID) || r.Site != "north" || r.Update != "a" || !r.Finished || r.Bundle != (explain.ReceiptBundle{Digest: "sha256:" + strings.Repeat("a", 64), Name: "demo", Version: "1.36.3"}) ||
		r.Kubernetes.From[0] != "v1.35.4" || r.Kubernetes.To != "v1.36.3" || r.Versions[0] != (explain.VersionCount{Version: "v1.36.3", Nodes: 1}) || r.FinishedAt.Sub(r.StartedAt) != time.Hour || r.Contact[0] != "Ann, +1 555 0100" {
		t.Errorf("%+v", r)
	}
	// An update that runs: as text, not finished, not signed.
	if said := p.types(console.ExitOK, "receipt", "b", "--text"); !strings.Contains(said, "it is not finished") || !strings.Contains(said, "phase Updating\n") || !strings.Contains(said, "not signed") {
		t.Error(said)
	}
	// The archive of the site shows the same, as of its time.
	archive := filepath.Join(t.TempDir(), "site.tar.gz")
	p.types(console.ExitOK, "support", "--output", archive)
	ofArchive := readReceipt(t, p.types(console.ExitOK, "receipt", "--output", "-", "--site", "north", "--contact", "Ann, +1 555 0100", "--from", archive))
	ofArchive.CreatedAt = r.CreatedAt
	if got, want := mustJSON(t, ofArchive), mustJSON(t, r); got != want {
		t.Errorf("of the archive:\n%s\nof the cluster:\n%s", got, want)
	}
	older := filepath.Join(t.TempDir(), "older.tar.gz")
	if err := os.WriteFile(older, []byte(packSupport(t, map[string]string{"support.json": `{"kind":"Support","createdAt":"2026-11-24T12:00:00Z"}`,
		"objects/ClusterUpdate.json": `{"apiVersion":"refit.dev/v1alpha1","kind":"ClusterUpdateList","items":[{"metadata":{"name":"u"}}]}`})), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := p.types(console.ExitBlocked, "receipt", "--from", older); !strings.Contains(said, "make it again") {
		t.Error(said)
	}
	for _, args := range [][]string{{"none"}, {"--site", "two\nlines"}, {"--site", strings.Repeat("x", 65)}, {"--contact", ""}, {"--contact", "1", "--contact", "2", "--contact", "3", "--contact", "4"}, {"--key", pub}, {"--key", "none"}, {"a", "b"}, {"--from", "none"}} {
		p.types(console.ExitUsage, append([]string{"receipt"}, args...)...)
	}
	p.plannedUpdate("c", "c", "sha256:"+strings.Repeat("0", 64), day.Add(time.Hour))
	if said := p.types(console.ExitVerification, "receipt"); !strings.Contains(said, "has digest") {
		t.Error(said)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v: %v", left, err)
	}
}

// A receipt has no secret that a message of a failed step has.
func TestAReceiptHidesSecrets(t *testing.T) {
	p := newPerson(t)
	plantSecrets(p)
	said := p.types(console.ExitOK, "receipt", "--output", "-")
	for where, secret := range planted {
		if strings.Contains(said, secret) {
			t.Errorf("the secret of %s is in the receipt: %s", where, said)
		}
	}
	if r := readReceipt(t, said); r.Reason != v1alpha1.ReasonAgentHeartbeatLost || !strings.Contains(r.Message, "kubeadm join with") {
		t.Errorf("%+v", r)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
