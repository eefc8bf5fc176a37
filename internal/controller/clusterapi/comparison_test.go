package clusterapi

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

const workers = "machinedeployment.pool" // the plan of the worker pool

// plans counts the InPlacePlans of all namespaces.
func (w *testClusters) plans() int {
	w.t.Helper()
	var l v1alpha1.InPlacePlanList
	if err := w.mgmt.List(w.t.Context(), &l); err != nil {
		w.t.Fatal(err)
	}
	return len(l.Items)
}

// refusedUnwritten asserts that a question is refused, moves no claim and makes no plan.
func refusedUnwritten(t *testing.T, w *testClusters, h hooks.Hook, plan, body, want string) {
	t.Helper()
	before := w.plans()
	var claims []v1alpha1.InPlaceClaim
	if before > 0 {
		claims = w.plan(plan).Status.Claims
	}
	a := w.askAsIs(h, body)
	if !a.Failed || len(a.Patches) > 0 || !strings.Contains(a.Message, want) {
		t.Errorf("%+v, want a refusal with %q", a, want)
	}
	if w.plans() != before {
		t.Errorf("the question made a plan")
	}
	if before > 0 {
		if diff := cmp.Diff(claims, w.plan(plan).Status.Claims); diff != "" {
			t.Errorf("the question moved the claims of the pool (-before +after): %s", diff)
		}
	}
}

// A request that differs from the stored objects changes no claim of the pool and
// creates no plan, for every caller.
func TestQuestionMustBeWhatTheAPIServerHolds(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	fs := newExtension(t)
	fs.claim = files
	fs.register(w, "motd", 2)
	const change = `{"version":"v1.36.3"}|{"vm":{"memory":4}}|{"files":[{"path":"/etc/motd","content":"hunter2"}]}`
	honest := claim("", same, change)
	if a := w.ask(hooks.CanUpdateMachineSet, honest); a.Failed {
		t.Fatal(a.Message)
	}
	if got := w.plan(workers).Status.Claims; len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	replace := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(honest) }
	cases := map[string]struct{ body, want string }{
		"a part of the change is left out":          {claim("", same, version136), "desired bootstrapConfigTemplate"},
		"the desired set is the current one":        {claim("", same, same), "desired machineSet"},
		"the desired files are given as current":    {claim("", change, change), "current machineSet"},
		"the current template is another":           {claim("", `{"version":"v1.35.4"}|{"vm":{"memory":4}}|{"files":[{"path":"/etc/motd","content":"hunter2"}]}`, change), "current bootstrapConfigTemplate"},
		"another version":                           {claim("", same, strings.Replace(change, "1.36.3", "1.36.9", 1)), "desired machineSet"},
		"another file":                              {claim("", same, strings.Replace(change, "hunter2", "evil", 1)), "desired bootstrapConfigTemplate"},
		"another template by reference":             {replace("pool-def-boot", "pool-abc-boot"), "desired machineSet"},
		"a set that is not there":                   {replace(`"name":"pool-abc"`, `"name":"none"`), "MachineSet default/none does not exist"},
		"another namespace":                         {replace(`"namespace":"default"`, `"namespace":"kube-system"`), "MachineSet kube-system/pool-abc does not exist"},
		"a template of another name than refers":    {replace(`"name":"pool-def-boot","labels"`, `"name":"pool-abc-boot","labels"`), "the bootstrapConfigTemplate of the request is not the one that MachineDeployment default/pool refers to"},
		"a template of another group than refers":   {replace(bootstrapGroup+"/v1", "rbac.authorization.k8s.io/v1"), "bootstrapConfigTemplate"},
		"a template is left out":                    {strings.Replace(honest, `,"bootstrapConfigTemplate"`, `,"x"`, 2), "bootstrapConfigTemplate"},
		"pool in a label of the request only":       {replace(`deployment-name":"pool"`, `deployment-name":"other"`, `"name":"pool-abc"`, `"name":"none"`), "does not exist"},
		"the fallback cannot turn it into an order": {strings.Replace(claim("", same, version136), `"settings":{}`, `"settings":{"fallback":"Replace"}`, 1), "desired bootstrapConfigTemplate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			refusedUnwritten(t, w, hooks.CanUpdateMachineSet, workers, tc.body, tc.want)
			if a := w.askAsIs(hooks.CanUpdateMachineSet, tc.body); strings.Contains(a.Message, "evil") || strings.Contains(a.Message, "hunter2") {
				t.Errorf("the refusal quotes a value: %s", a.Message)
			}
		})
	}
	if a := w.askAsIs(hooks.CanUpdateMachineSet, honest); a.Failed {
		t.Errorf("the true question is answered as before: %s", a.Message)
	}
	w.fail["get VMTemplate"] = errors.New("token=hunter2")
	refusedUnwritten(t, w, hooks.CanUpdateMachineSet, workers, honest, "to read VMTemplate default/pool-abc-vm")
	delete(w.fail, "get VMTemplate")
	if err := w.mgmt.Delete(t.Context(), object(kindDeployment, "pool", nil, nil)); err != nil {
		t.Fatal(err)
	}
	refusedUnwritten(t, w, hooks.CanUpdateMachineSet, workers, honest, "MachineDeployment default/pool does not exist")
}

// controlPlane makes the API server hold a control plane that moves from one
// version to the next and gets a file and more memory, and returns the question.
func controlPlane(w *testClusters) (question string) {
	w.t.Helper()
	labels := map[string]string{labelCluster: "c1", labelControlPlane: "cp", labelIsControl: ""}
	m := object(kindMachine, "cp-1", labels, map[string]any{"version": oldVersion, "clusterName": "c1",
		"infrastructureRef": map[string]any{"apiGroup": infraGroup, "kind": "VM", "name": "cp-1-vm"},
		"bootstrap":         map[string]any{"configRef": map[string]any{"apiGroup": bootstrapGroup, "kind": "KubeadmConfig", "name": "cp-1-boot"}}})
	w.put(m)
	w.put(provider("VM", "cp-1-vm", `{"vm":{"memory":4},"providerID":"vm://1"}`))
	w.put(provider("VMTemplate", "cp-vm", `{"template":{"spec":{"vm":{"memory":8}}}}`))
	w.put(provider("KubeadmConfig", "cp-1-boot", `{"clusterConfiguration":{"controlPlaneEndpoint":"x:6443"},"joinConfiguration":{"discovery":{"token":"hunter2"}},"files":[]}`))
	w.ofPool(kindControlPlane, "cp", func(o map[string]any) error {
		o["spec"] = plain(w.t, map[string]any{"version": newVersion,
			"machineTemplate":   map[string]any{"spec": map[string]any{"infrastructureRef": map[string]any{"apiGroup": infraGroup, "kind": "VMTemplate", "name": "cp-vm"}}},
			"kubeadmConfigSpec": map[string]any{"files": []any{map[string]any{"path": "/etc/motd", "content": "hunter2"}}, "users": []any{}}}).Object
		return nil
	})
	machine := func(version string) map[string]any {
		o := m.DeepCopy().Object
		putIn(o, version, "spec", "version")
		delete(o["metadata"].(map[string]any), "uid")
		return o
	}
	body := map[string]any{"apiVersion": hooks.APIVersion, "kind": "CanUpdateMachineRequest",
		"current": map[string]any{"machine": machine(oldVersion), "infrastructureMachine": provider("VM", "cp-1-vm", `{"vm":{"memory":4},"providerID":"vm://1"}`).Object,
			"bootstrapConfig": provider("KubeadmConfig", "cp-1-boot", `{"clusterConfiguration":{}}`).Object},
		"desired": map[string]any{"machine": machine(newVersion), "infrastructureMachine": provider("VM", "cp-1-vm", `{"vm":{"memory":8},"providerID":"vm://1"}`).Object,
			"bootstrapConfig": provider("KubeadmConfig", "cp-1-boot", `{"clusterConfiguration":{},"files":[{"path":"/etc/motd","content":"hunter2"}]}`).Object}}
	data, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

func TestQuestionAboutAControlPlane(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	fs, vm := newExtension(t), newExtension(t)
	fs.claim, vm.claim = files, memory
	fs.register(w, "motd", 2, "bootstrap")
	vm.register(w, "vm-resizer", 1, "infrastructure")
	honest := controlPlane(w)
	cases := map[string]struct{ old, by, want string }{
		"another version":                {`"version":"v1.36.3"`, `"version":"v1.36.9"`, "desired machine"},
		"an invented current version":    {`"version":"v1.35.4"`, `"version":"v1.36.3"`, "current machine"},
		"a machine that is not there":    {`"name":"cp-1"`, `"name":"none"`, "Machine default/none does not exist"},
		"the files are left out":         {`"files":[{"content":"hunter2","path":"/etc/motd"}]`, `"files":[]`, "desired bootstrapConfig"},
		"another file":                   {`"content":"hunter2"`, `"content":"evil"`, "desired bootstrapConfig"},
		"the memory is left out":         {`"memory":8`, `"memory":4`, "desired infrastructureMachine"},
		"an invented current memory":     {`"memory":4`, `"memory":8`, "current infrastructureMachine"},
		"the bootstrap object is absent": {`"bootstrapConfig"`, `"x"`, "bootstrapConfig"},
		"another object's name":          {`"name":"cp-1-vm"`, `"name":"cp-2-vm"`, "infrastructureMachine"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			body := strings.ReplaceAll(honest, tc.old, tc.by)
			if body == honest {
				t.Fatal("the case changes nothing")
			}
			refusedUnwritten(t, w, hooks.CanUpdateMachine, "kubeadmcontrolplane.cp", body, tc.want)
		})
	}
	if a := w.askAsIs(hooks.CanUpdateMachine, honest); a.Failed || len(a.Patches) != 3 {
		t.Errorf("%+v", a)
	}
	if got := w.plan("kubeadmcontrolplane.cp").Status.Claims; len(got) != 3 {
		t.Errorf("%+v", got)
	}
}

// An updater gets the stored objects and not those of the caller.
func TestUpdaterIsSentWhatTheAPIServerHolds(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	fs := newExtension(t)
	var seen []hooks.Request
	fs.update = func(r hooks.Request) hooks.Answer { seen = append(seen, r); return hooks.Answer{} }
	fs.register(w, "motd", 2)
	m := w.machine("m1", oldVersion, true)
	putIn(m.Object, bootRef, "spec", "bootstrap", "configRef")
	if err := w.mgmt.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.node("node-m1", oldVersion, oldVersion)
	w.put(provider("KubeadmConfig", "m1-boot", `{"files":[{"path":"/etc/motd","content":"as stored"}]}`))
	body := func(name, version string) string {
		return `{` + apiVersion + `,"kind":"UpdateMachineRequest","desired":{"machine":{"metadata":{"namespace":"default","name":"m1","annotations":{"evil":"1"}},"spec":{"version":"v1.35.4","providerID":"evil"}},` +
			`"bootstrapConfig":{"apiVersion":"` + version + `","kind":"KubeadmConfig","metadata":{"namespace":"default","name":"` + name + `"},"spec":{"files":[{"path":"/etc/cron.d/evil","content":"evil"}]}}}}`
	}
	if a := w.askAsIs(hooks.UpdateMachine, body("m1-boot", bootstrapGroup+"/v1")); !done(a) {
		t.Errorf("%+v", a)
	}
	if len(seen) != 1 {
		t.Fatalf("the updater was asked %d times", len(seen))
	}
	text, err := json.Marshal(seen[0])
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "evil") || !strings.Contains(string(text), "as stored") || inplaceValue(seen[0].Desired[capidiff.Machine], capidiff.SpecOfMachine, "version") != oldVersion {
		t.Errorf("the updater was sent %s", text)
	}
	for name, bad := range map[string]string{
		"an object that the Machine does not refer to": body("other", bootstrapGroup+"/v1"),
		"an object of another group":                   body("m1-boot", "rbac.authorization.k8s.io/v1"),
		"no object":                                    `{` + apiVersion + `,"kind":"UpdateMachineRequest","desired":{"machine":{"metadata":{"namespace":"default","name":"m1"},"spec":{"version":"v1.35.4"}}}}`,
	} {
		if a := w.askAsIs(hooks.UpdateMachine, bad); done(a) || a.Failed || !strings.Contains(a.Message, "bootstrapConfig") {
			t.Errorf("%s: %+v", name, a)
		}
	}
	w.fail["get KubeadmConfig"] = errors.New("token=hunter2")
	if a := w.askAsIs(hooks.UpdateMachine, body("m1-boot", bootstrapGroup+"/v1")); done(a) || !strings.Contains(a.Message, "KubeadmConfig default/m1-boot") || strings.Contains(a.Message, "hunter2") {
		t.Errorf("%+v", a)
	}
	if len(seen) != 1 {
		t.Errorf("the updater was asked about an object that was not read")
	}
}

var bootRef = map[string]any{"apiGroup": bootstrapGroup, "kind": "KubeadmConfig", "name": "m1-boot"}
