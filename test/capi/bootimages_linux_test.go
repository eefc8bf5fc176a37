package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/convert"
)

// imageMark is the annotation in which the templates of this test name their image.
// In-memory machines have no image field. Cluster API copies the annotation to every
// machine that it creates from the template.
const imageMark = "example.com/image"

// bootImages are three releases, and a policy with a row for the template.
const bootImages = `
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: v1.35.3}
spec: {inline: '{"apiVersion":"refit.dev/boot-images/v1","release":"1.35.3","images":[{"architecture":"amd64","platform":"memory","version":"9.2.20240101-0","attributes":{"image":"old"}}]}'}
---
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: v1.35.4}
spec: {inline: '{"apiVersion":"refit.dev/boot-images/v1","release":"1.35.4","images":[{"architecture":"amd64","platform":"memory","version":"9.4.20250101-0","attributes":{"image":"new"}}]}'}
---
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: v1.36.3}
spec: {inline: '{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[{"architecture":"amd64","platform":"memory","version":"9.6.20251023-0","attributes":{"image":"next"}}]}'}
---
apiVersion: refit.dev/v1alpha1
kind: BootImagePolicy
metadata: {name: all}
spec:
  streams: [v1.35.3, v1.35.4, v1.36.3]
  managers:
  - {group: cluster.x-k8s.io, kind: MachineDeployment, mode: NewMachinesOnly, architecture: amd64}
  - {group: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, mode: Piggyback, architecture: amd64}
  kinds:
    images:
    - group: infrastructure.cluster.x-k8s.io
      kind: DevMachineTemplate
      versions: [v1beta2]
      platform: memory
      immutable: true
      schema: published CRD of the in-memory provider
      forms: [{set: [{path: 'spec.template.metadata.annotations["example.com/image"]', from: image}]}]
`

// A1 to A3 with Cluster API's own controllers. The machines are in memory.
func TestBootImagesOfClusterAPI(t *testing.T) {
	skipUnlessAsked(t)
	m := start(t)
	access, err := config.BootImages()
	must(t, err)
	m.apply(access...)
	// Created, not applied: who applies owns the image, and would be asked to write it.
	m.makeClusterOf(strings.Replace(clusterYAML, "  template:\n    spec:\n      backend:", "  template:\n    metadata: {annotations: {"+imageMark+": old}}\n    spec:\n      backend:", 1), m.make)
	before := m.identities()
	for doc := range strings.SplitSeq(strings.TrimSpace(bootImages), "\n---\n") {
		o := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(doc), &o.Object))
		m.apply(o)
	}
	m.a1RollingReplacesNothing(before)
	m.a2ScaleUpStartsFromTheNewImage(before)
	// Before A3: Cluster API's preflight checks make no workers of an older minor version than the
	// control plane's.
	m.a4OneMachineFirst()
	m.a3ControlPlaneRollsOnce()
}

// make creates an object as kubectl create does, and waits for webhooks that are
// not up yet.
func (m *management) make(o *unstructured.Unstructured) {
	m.t.Helper()
	m.wait("make "+o.GetKind()+" "+o.GetName(), func() string {
		if err := m.admin.Create(m.t.Context(), o.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		return ""
	})
}

// waitSource waits until a MachineSource says something.
func (m *management) waitSource(name, reason string) *v1alpha1.MachineSource {
	m.t.Helper()
	s := &v1alpha1.MachineSource{}
	m.wait(name+" says "+reason, func() string {
		if err := m.admin.Get(m.t.Context(), client.ObjectKey{Name: name}, s); err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		if c != nil && c.Reason == reason {
			return ""
		}
		return fmt.Sprintf("%+v", s.Status)
	})
	return s
}

const workersSource, controlSource = "machinedeployment.default.workers", "kubeadmcontrolplane.default.cp"

// A1: a MachineDeployment that rolls is not written; the reason is stated.
func (m *management) a1RollingReplacesNothing(before map[string]types.UID) {
	m.t.Helper()
	generation := m.get("MachineDeployment", "workers").GetGeneration()
	s := m.waitSource(workersSource, v1alpha1.ReasonWouldReplaceMachines)
	if now := m.get("MachineDeployment", "workers").GetGeneration(); now != generation || s.Status.State != v1alpha1.SourceOutdated {
		m.t.Errorf("generation %d after %d, %+v", now, generation, s.Status)
	}
	m.same(before, "A1, RollingUpdate in NewMachinesOnly")
	m.say("A1: RollingUpdate is not written: %s", meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady).Message)
}

// imageOf the infrastructure machine that was made for a Machine.
func (m *management) imageOf(machine *unstructured.Unstructured) string {
	m.t.Helper()
	return m.get("DevMachine", text(machine, "spec", "infrastructureRef", "name")).GetAnnotations()[imageMark]
}

// A2: with OnDelete the reference moves, no machine does; one more machine starts
// from the new image.
func (m *management) a2ScaleUpStartsFromTheNewImage(before map[string]types.UID) {
	m.t.Helper()
	m.patch("MachineDeployment", "workers", `{"spec":{"rollout":{"strategy":{"type":"OnDelete","rollingUpdate":null}}}}`)
	s := m.waitSource(workersSource, v1alpha1.ReasonAsExpected)
	template := s.Status.History[0].Object
	m.wait("Cluster API has a MachineSet for the new template", func() string {
		sets, err := m.list(m.t.Context(), "MachineSet")
		if err != nil {
			return err.Error()
		}
		var names []string
		for i := range sets {
			name := text(&sets[i], "spec", "template", "spec", "infrastructureRef", "name")
			if name == template {
				return ""
			}
			names = append(names, name)
		}
		return fmt.Sprint(names)
	})
	m.same(before, "A2, the reference has moved")
	m.patch("MachineDeployment", "workers", `{"spec":{"replicas":4}}`)
	var added *unstructured.Unstructured
	m.wait("a fourth worker runs", func() string {
		machines, err := m.list(m.t.Context(), "Machine")
		if err != nil {
			return err.Error()
		}
		for i := range machines {
			if _, old := before[machines[i].GetName()]; !old && text(&machines[i], "status", "phase") == "Running" {
				added = &machines[i]
				return ""
			}
		}
		return fmt.Sprintf("%d machines", len(machines))
	})
	now := m.identities()
	for name, uid := range before {
		if now[name] != uid {
			m.t.Errorf("A2: %s was replaced", name)
		}
	}
	if image := m.imageOf(added); image != "new" || len(now) != len(before)+1 {
		m.t.Errorf("A2: %s starts from %q; %d machines after %d", added.GetName(), image, len(now), len(before))
	}
	m.say("A2: OnDelete: %s started from the new image, the other %d are untouched", added.GetName(), len(before))
}

// A3: image and version in one write, so the control plane rolls once.
func (m *management) a3ControlPlaneRollsOnce() {
	m.t.Helper()
	s := m.waitSource(controlSource, v1alpha1.ReasonBootImageStaged)
	kcp := m.get("KubeadmControlPlane", "cp")
	seen := map[types.UID]string{}
	m.controlPlanes(seen)
	if len(seen) != 3 || s.Status.Staged == "" {
		m.t.Fatalf("A3: %d control planes, %+v", len(seen), s.Status)
	}
	mark, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationWantedVersion: to}}})
	must(m.t, err)
	m.patch("KubeadmControlPlane", "cp", string(mark))
	m.wait("three control planes of "+to+" that run", func() string {
		machines := m.controlPlanes(seen)
		done := 0
		for i := range machines {
			if text(&machines[i], "spec", "version") == to && text(&machines[i], "status", "phase") == "Running" {
				done++
			}
		}
		ready, _, _ := unstructured.NestedInt64(m.get("KubeadmControlPlane", "cp").Object, "status", "readyReplicas")
		if done == 3 && len(machines) == 3 && ready == 3 {
			return ""
		}
		return fmt.Sprintf("%d of %d are done, %d ready; %s", done, len(machines), ready, condition(m.get("KubeadmControlPlane", "cp"), "RollingOut"))
	})
	if now := m.get("KubeadmControlPlane", "cp"); now.GetGeneration() != kcp.GetGeneration()+1 {
		m.t.Errorf("A3: one write, but generation %d after %d", now.GetGeneration(), kcp.GetGeneration())
	}
	m.waitSource(controlSource, v1alpha1.ReasonAsExpected)
	for _, o := range m.controlPlanes(seen) {
		if image := m.imageOf(&o); image != "next" {
			m.t.Errorf("A3: %s starts from %q", o.GetName(), image)
		}
	}
	if len(seen) != 6 {
		m.t.Errorf("A3: %d control-plane machines were seen, three that went and three that came are six: %v", len(seen), seen)
	}
	m.say("A3: image and version in one write: %d control-plane machines seen in all, one rollout", len(seen))
}

// controlPlanes lists them, and notes each that was ever there.
func (m *management) controlPlanes(seen map[types.UID]string) []unstructured.Unstructured {
	m.t.Helper()
	machines, err := m.list(context.Background(), "Machine")
	must(m.t, err)
	var out []unstructured.Unstructured
	for _, o := range machines {
		if _, ok := o.GetLabels()["cluster.x-k8s.io/control-plane"]; ok {
			seen[o.GetUID()] = o.GetName()
			out = append(out, o)
		}
	}
	return out
}

// freshStream replaces the stream of the workers' release: its image is newer than theirs.
const freshStream = `{"spec":{"inline":"{\"apiVersion\":\"refit.dev/boot-images/v1\",\"release\":\"1.35.4\",\"images\":[{\"architecture\":\"amd64\",\"platform\":\"memory\",\"version\":\"9.5.20250601-0\",\"attributes\":{\"image\":\"fresh\"}}]}"}}`

// A4: one machine tries an image first. Two machines that are refused end it, and nothing is
// written; a person lets it be tried again, and the third machine passes. Then the image is
// rolled back.
func (m *management) a4OneMachineFirst() {
	m.t.Helper()
	joins, err := config.Joins()
	must(m.t, err)
	m.apply(joins...)
	before, template := m.identities(), text(m.get("MachineDeployment", "workers"), "spec", "template", "spec", "infrastructureRef", "name")
	must(m.t, m.admin.Patch(m.t.Context(), &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}, client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/spec/managers/0/canary","value":{"mode":"Replica","healthyMinutes":1,"joinMinutes":10}}]`))))
	must(m.t, m.admin.Patch(m.t.Context(), &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "v1.35.4"}}, client.RawPatch(types.MergePatchType, []byte(freshStream))))
	for i := range 2 {
		m.refuseCanary(before)
		if i == 0 {
			m.wait("the first refusal is recorded", func() string {
				s := &v1alpha1.MachineSource{}
				if err := m.admin.Get(m.t.Context(), client.ObjectKey{Name: workersSource}, s); err != nil || s.Status.Canary == nil || len(s.Status.Canary.Failures) != 1 {
					return fmt.Sprintf("%v %+v", err, s.Status)
				}
				return ""
			})
		}
	}
	s := m.waitSource(workersSource, v1alpha1.ReasonBootImageCanaryFailed)
	m.wait("refused machines go", func() string { return cmp.Diff(before, m.identities()) })
	if now := text(m.get("MachineDeployment", "workers"), "spec", "template", "spec", "infrastructureRef", "name"); now != template || len(s.Status.Canary.Failures) != 2 {
		m.t.Errorf("A4: template %s after %s, %+v", now, template, s.Status.Canary)
	}
	m.say("A4: two machines were refused and removed, nothing was written: %s", meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady).Message)

	decide := fmt.Sprintf(`{"spec":{"canary":{"image":"fresh","action":"Retry","by":"ann","at":%q}}}`, time.Now().UTC().Format(time.RFC3339))
	must(m.t, m.admin.Patch(m.t.Context(), s, client.RawPatch(types.MergePatchType, []byte(decide))))
	name := m.canaryMachine(before).GetName()
	m.wait("the machine of the third canary runs", func() string { return m.runs(name) })
	if image := m.imageOf(m.get("Machine", name)); image != "fresh" {
		m.t.Errorf("A4: the canary starts from %q", image)
	}
	s = m.waitSource(workersSource, v1alpha1.ReasonAsExpected)
	if h := s.Status.History; h[len(h)-1].To != "fresh" || s.Status.Canary.PassedAt == nil {
		m.t.Errorf("A4: %+v", s.Status)
	}
	m.wait("the canary goes", func() string { return cmp.Diff(before, m.identities()) })
	m.say("A4: %s was Ready for a minute, then the image was written, and the machine removed", name)

	back := `{"spec":{"rollback":{"to":"new","rejected":{"image":"fresh","os":"9.5.20250601-0"},"by":"ann"}}}`
	must(m.t, m.admin.Patch(m.t.Context(), s, client.RawPatch(types.MergePatchType, []byte(back))))
	m.waitSource(workersSource, v1alpha1.ReasonBootImageRolledBack)
	if now := text(m.get("MachineDeployment", "workers"), "spec", "template", "spec", "infrastructureRef", "name"); now != template {
		m.t.Errorf("A4: rolled back to template %s, was %s", now, template)
	}
	m.same(before, "A4, the image is rolled back")
}

// runs is empty if a machine's phase is Running, so that a wait for it ends.
func (m *management) runs(name string) string {
	if text(m.get("Machine", name), "status", "phase") == "Running" {
		return ""
	}
	return name + " is not Running"
}

// canaryMachine waits for a machine that is not one of before and is not being deleted.
func (m *management) canaryMachine(before map[string]types.UID) *unstructured.Unstructured {
	m.t.Helper()
	var out *unstructured.Unstructured
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		machines, err := m.list(m.t.Context(), "Machine")
		must(m.t, err)
		for i := range machines {
			if _, old := before[machines[i].GetName()]; !old && machines[i].GetDeletionTimestamp() == nil {
				out = &machines[i]
			}
		}
		if out != nil {
			return out
		}
	}
	m.t.Fatalf("no canary after %s", patience)
	return nil
}

// refuseCanary plays the first-boot server: the machine of the canary is refused, and does not join.
func (m *management) refuseCanary(before map[string]types.UID) {
	m.t.Helper()
	name := m.canaryMachine(before).GetName()
	m.patch("Machine", name, `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""}}}`)
	_, made, err := convert.NewJoinToken("w", time.Now().Add(time.Hour))
	must(m.t, err)
	made.Annotations[convert.AnnotationRefused], made.Annotations[convert.AnnotationRefusedFrom] = "This machine cannot join pool w: too old", "10.9.8.1"
	made.Annotations[convert.AnnotationRefusedAt], made.Annotations[convert.AnnotationMachine] = time.Now().Add(time.Second).UTC().Format(time.RFC3339), "default/"+name
	must(m.t, m.admin.Create(m.t.Context(), &corev1.Secret{ObjectMeta: made}))
	m.wait("the refused canary is removed", func() string {
		machines, err := m.list(m.t.Context(), "Machine")
		must(m.t, err)
		for i := range machines {
			if machines[i].GetName() == name && machines[i].GetDeletionTimestamp() == nil {
				return name + " is there"
			}
		}
		return ""
	})
	m.patch("Machine", name, `{"metadata":{"annotations":{"cluster.x-k8s.io/paused":null}}}`)
}
