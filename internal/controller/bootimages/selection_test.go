package bootimages_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// writtenHistory has the images that refit wrote for a source, oldest first.
func writtenHistory(s *v1alpha1.MachineSource) (out []string) {
	for i := range s.Status.History {
		out = append(out, s.Status.History[i].To)
	}
	return out
}

// Partial selects by labels. A version is recorded as enforced (Automatic) only where refit
// writes the images of all objects of a kind: who selects some, or only watches, answers for
// the others.
func testSelection(s *site) {
	for _, c := range []struct {
		mode, more string
		// written is whether the object with the label gets the image; skew is its mode.
		written bool
		skew    string
	}{
		{"NewMachinesOnly", ", select: Partial, selector: {matchLabels: {refit: chosen}}", true, "Manual"},
		{"NewMachinesOnly", ", select: All", true, "Automatic"},
		{"Roll", ", select: All", true, "Automatic"},
		{"Observe", ", select: All", false, "Manual"},
		{"Propose", ", select: All", false, "Manual"},
	} {
		ns := "sel-" + strings.ToLower(c.mode) + fmt.Sprint(len(c.more))
		partial := strings.Contains(c.more, "Partial")
		s.namespace(ns)
		s.make(awsTemplate(ns, "w", "ami-135"))
		for _, name := range []string{"chosen", "other"} {
			s.make(deployment(ns, name, "OnDelete", "w", "v1.36.3"))
			s.merge(s.get(capiV, "MachineDeployment", ns, name), "person", `{"metadata":{"labels":{"refit":"`+name+`"}}}`)
		}
		s.make(policyOf("sel", ns, "cluster.x-k8s.io", "MachineDeployment", c.mode, c.more))
		s.look()
		src := s.source("machinedeployment." + ns + ".chosen")
		if got := refOf(s.get(capiV, "MachineDeployment", ns, "chosen")) != "w"; got != c.written || src.Status.SkewMode != c.skew || len(writtenHistory(src)) > 0 != c.written {
			s.t.Errorf("%s%s: written %t, skew %s, history %v", c.mode, c.more, got, src.Status.SkewMode, writtenHistory(src))
		}
		if got := refOf(s.get(capiV, "MachineDeployment", ns, "other")) != "w"; got != (c.written && !partial) {
			s.t.Errorf("%s%s: the object without the label was written: %t", c.mode, c.more, got)
		}
		want := int32(2)
		if partial {
			want = 1
		}
		if p := s.policy("sel"); p.Status.Sources != want {
			s.t.Errorf("%s%s: %d sources, want %d", c.mode, c.more, p.Status.Sources, want)
		}
		s.end("sel")
		s.look()
	}
}

// Mode Roll replaces running machines, so it starts in a window only, and says when it waits.
func testRollWindow(s *site) {
	at := s.now.UTC().Add(2 * time.Hour)
	s.namespace("roll")
	s.make(awsTemplate("roll", "w", "ami-135"))
	s.make(deployment("roll", "workers", "RollingUpdate", "w", "v1.36.3"))
	s.make(policyOf("roll", "roll", "cluster.x-k8s.io", "MachineDeployment", "Roll", fmt.Sprintf(", windows: [{start: %q, durationMinutes: 60}]", at.Format("15:04"))))
	uses := func() string { return refOf(s.get(capiV, "MachineDeployment", "roll", "workers")) }
	before := s.now
	for _, now := range []time.Time{before, at.Add(62 * time.Minute)} { // before it opens, after it closed
		s.now = now
		s.look()
		src := s.source("machinedeployment.roll.workers")
		if uses() != "w" || len(writtenHistory(src)) != 0 || !strings.Contains(says(src.Status.Conditions, v1alpha1.ConditionReady), "window") {
			s.t.Fatalf("at %s it uses %s: %s", now.UTC().Format("15:04"), uses(), says(src.Status.Conditions, v1alpha1.ConditionReady))
		}
	}
	s.now = at.Add(24*time.Hour + 10*time.Minute)
	s.look()
	if src := s.source("machinedeployment.roll.workers"); uses() == "w" || strings.Join(writtenHistory(src), " ") != "ami-136" {
		s.t.Errorf("in the window it uses %s: %v", uses(), writtenHistory(src))
	}
	s.end("roll")
	s.now = before
	s.look()
}

// The API server refuses the write of one object. The next one is written in the same pass, the
// history of the first has nothing, and it is written once as soon as that works.
func testFailingWrite(s *site) {
	s.namespace("fails")
	s.make(awsTemplate("fails", "w", "ami-135"))
	for _, name := range []string{"a-refused", "b-next"} {
		s.make(deployment("fails", name, "OnDelete", "w", "v1.36.3"))
	}
	s.make(policyOf("fails", "fails", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	s.line.deny = "/machinedeployments/a-refused"
	for range 2 {
		if _, err := s.r.Reconcile(context.Background(), ctrl.Request{}); err == nil || !strings.Contains(err.Error(), "a-refused") {
			s.t.Errorf("the failure must be returned, so that it is tried again: %v", err)
		}
		refused, next := s.source("machinedeployment.fails.a-refused"), s.source("machinedeployment.fails.b-next")
		s.expect("the refused one", says(refused.Status.Conditions, v1alpha1.ConditionReady), "False BootImageOutdated", "refused by a test", "refit tries again")
		if len(writtenHistory(refused)) != 0 || refused.Status.State != v1alpha1.SourceOutdated || strings.Join(writtenHistory(next), " ") != "ami-136" {
			s.t.Fatalf("refused: %v, %s; next: %v", writtenHistory(refused), refused.Status.State, writtenHistory(next))
		}
	}
	s.line.deny = ""
	s.restart()
	s.look()
	if src := s.source("machinedeployment.fails.a-refused"); strings.Join(writtenHistory(src), " ") != "ami-136" || refOf(s.get(capiV, "MachineDeployment", "fails", "a-refused")) == "w" {
		s.t.Errorf("%+v", src.Status)
	}
	s.end("fails")
}

// Nothing is enforced where no machine can start from an old image. That is a cluster of one node
// whose set has no machines, or a set whose images come with the release. It runs before stories
// that add nodes.
func testNothingToEnforce(s *site) {
	s.namespace("sno")
	set := func(name, replicas, value string) {
		s.make(fmt.Sprintf(`
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: %s, namespace: sno, annotations: {capacity.cluster-autoscaler.kubernetes.io/labels: kubernetes.io/arch=amd64}}
spec: {replicas: %s, template: {spec: {providerSpec: {value: %s}}}}
`, name, replicas, value))
	}
	const gcp = "{kind: GCPMachineProviderSpec, region: r9, disks: [{boot: true, image: projects/p/global/images/i-135}]}"
	set("none", "0", gcp)
	set("some", "1", gcp)
	set("payload", "2", `{kind: BareMetalMachineProviderSpec, customDeploy: {method: install_coreos}, image: {url: "", checksum: ""}}`)
	set("url", "2", `{kind: BareMetalMachineProviderSpec, image: {url: "http://10.0.0.1/rhcos.qcow2", checksum: a}}`)
	s.make(policyOf("sno", "sno", "machine.openshift.io", "MachineSet", "NewMachinesOnly", ""))
	for _, nodes := range []struct {
		when, none string
		change     func(*corev1.Node)
	}{
		{"one node", "None", func(*corev1.Node) {}},
		{"two nodes", "Automatic", func(n *corev1.Node) {
			if err := s.admin.Create(context.Background(), n); err != nil {
				s.t.Fatal(err)
			}
		}},
		{"one node again", "None", func(n *corev1.Node) {
			if err := s.admin.Delete(context.Background(), n); err != nil {
				s.t.Fatal(err)
			}
		}},
	} {
		nodes.change(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-of-sno"}})
		s.look()
		for name, want := range map[string]string{"none": nodes.none, "some": "Automatic", "payload": "None", "url": "Automatic"} {
			src := s.source("machineset.machine.sno." + name)
			if src.Status.SkewMode != want {
				s.t.Errorf("%s: %s is %s, want %s", nodes.when, name, src.Status.SkewMode, want)
			}
		}
		payload := s.source("machineset.machine.sno.payload")
		s.expect("payload", says(payload.Status.Conditions, v1alpha1.ConditionReady), "BootImageExcluded its image comes with the release payload")
		s.expect("payload", says(payload.Status.Conditions, v1alpha1.ConditionNewEnough), "True")
	}
	// What a person sets counts.
	s.merge(s.get("refit.dev/v1alpha1", "MachineSource", "", "machineset.machine.sno.none"), "person", `{"spec":{"skew":"Manual"}}`)
	s.look()
	if src := s.source("machineset.machine.sno.none"); src.Status.SkewMode != "Manual" {
		s.t.Error(src.Status.SkewMode)
	}
	s.end("sno")
	s.look()
}
