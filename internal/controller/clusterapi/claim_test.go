package clusterapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

// claim builds a CanUpdateMachineSet request of the worker pool, by hand: the
// version of the set, the infrastructure's template and the bootstrap's one.
func claim(settings, current, desired string) string {
	side := func(name, text string) string {
		parts := strings.Split(text, "|")
		refs := `,"infrastructureRef":{"apiGroup":"` + infraGroup + `","kind":"VMTemplate","name":"` + name + `-vm"},"bootstrap":{"configRef":{"apiGroup":"` + bootstrapGroup + `","kind":"KubeadmConfigTemplate","name":"` + name + `-boot"}}}`
		return `{"machineSet":` + templateOf("cluster.x-k8s.io/v1beta2", "MachineSet", name, strings.TrimSuffix(parts[0], "}")+refs) +
			`,"infrastructureMachineTemplate":` + templateOf(infraGroup+"/v1", "VMTemplate", name+"-vm", parts[1]) +
			`,"bootstrapConfigTemplate":` + templateOf(bootstrapGroup+"/v1", "KubeadmConfigTemplate", name+"-boot", parts[2]) + `}`
	}
	if settings == "" {
		settings = "{}"
	}
	return `{` + apiVersion + `,"kind":"CanUpdateMachineSetRequest","settings":` + settings + `,"current":` + side("pool-abc", current) + `,"desired":` + side("pool-def", desired) + `}`
}

func templateOf(version, kind, name, spec string) string {
	return `{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"namespace":"default","name":"` + name + `","labels":{"cluster.x-k8s.io/cluster-name":"c1","cluster.x-k8s.io/deployment-name":"pool"}},"spec":{"template":{"spec":` + spec + `}}}`
}

const (
	same        = `{"version":"v1.35.4"}|{"vm":{"memory":4}}|{"files":[]}`
	version136  = `{"version":"v1.36.3"}|{"vm":{"memory":4}}|{"files":[]}`
	bothChanged = `{"version":"v1.36.3"}|{"vm":{"memory":8},"image":"i"}|{"files":[{"path":"/etc/motd","content":"hunter2"}]}`
)

// What is claimed, what is left, and what becomes of it.
func TestClaims(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		settings, current, desired string
		annotation                 map[string]string // on the pool
		patches                    map[string]string
		refused                    string // part of the message
		reason                     string // of Covered
		uncovered                  []string
	}{
		"a minor version is covered": {"", same, version136, nil,
			map[string]string{capidiff.Machine: `[{"op":"replace","path":"/spec/template/spec/version","value":"v1.36.3"}]`}, "", v1alpha1.ReasonAsExpected, nil},
		"nothing that is compared differs": {"", same, same, nil, nil, "", v1alpha1.ReasonNothingToDo, nil},
		"a version that skips one is refused, not replaced": {"", same, strings.Replace(version136, "1.36", "1.37", 1), nil, nil,
			"refit: no updater covers machine/spec/version: the machines of MachineDeployment/pool stay unchanged", v1alpha1.ReasonNoUpdater, []string{capidiff.PathVersion}},
		"what is not covered is named, field by field, and nothing moves": {"", same, bothChanged, nil, nil,
			"no updater covers bootstrap/spec/files[~1etc~1motd], infrastructure/spec/image, infrastructure/spec/vm/memory: the machines", v1alpha1.ReasonNoUpdater,
			[]string{"bootstrap/spec/files[~1etc~1motd]", "infrastructure/spec/image", "infrastructure/spec/vm/memory"}},
		"with fallback the covered part is claimed and Cluster API replaces": {"", same, bothChanged, map[string]string{v1alpha1.AnnotationFallback: "Replace"},
			map[string]string{capidiff.Machine: `[{"op":"replace","path":"/spec/template/spec/version","value":"v1.36.3"}]`}, "", v1alpha1.ReasonReplacementFallback,
			[]string{"bootstrap/spec/files[~1etc~1motd]", "infrastructure/spec/image", "infrastructure/spec/vm/memory"}},
		"the fallback of the ExtensionConfig is for pools that say nothing": {`{"fallback":"replace"}`, same, bothChanged, nil,
			map[string]string{capidiff.Machine: `[{"op":"replace","path":"/spec/template/spec/version","value":"v1.36.3"}]`}, "", v1alpha1.ReasonReplacementFallback,
			[]string{"bootstrap/spec/files[~1etc~1motd]", "infrastructure/spec/image", "infrastructure/spec/vm/memory"}},
		"a pool that says Preserve is preserved": {`{"fallback":"Replace"}`, same, bothChanged, map[string]string{v1alpha1.AnnotationFallback: "Preserve"}, nil, "no updater covers", v1alpha1.ReasonNoUpdater,
			[]string{"bootstrap/spec/files[~1etc~1motd]", "infrastructure/spec/image", "infrastructure/spec/vm/memory"}},
		"a fallback with an unknown value preserves": {`{"fallback":"yes"}`, same, bothChanged, nil, nil, "no updater covers", v1alpha1.ReasonNoUpdater,
			[]string{"bootstrap/spec/files[~1etc~1motd]", "infrastructure/spec/image", "infrastructure/spec/vm/memory"}},
		"what concerns new machines only is no reason to replace those that run (trap 4)": {`{"newMachinesOnly":"infrastructure/spec/image, bootstrap/spec/files, infrastructure/spec/vm"}`, same, bothChanged, nil,
			map[string]string{
				capidiff.Machine:        `[{"op":"replace","path":"/spec/template/spec/version","value":"v1.36.3"}]`,
				capidiff.Infrastructure: `[{"op":"add","path":"/spec/template/spec/image","value":"i"},{"op":"replace","path":"/spec/template/spec/vm/memory","value":8}]`,
				capidiff.Bootstrap:      `[{"op":"replace","path":"/spec/template/spec/files","value":[{"content":"hunter2","path":"/etc/motd"}]}]`,
			}, "", v1alpha1.ReasonAsExpected, nil},
		"a part of a name is not the name": {"", same, bothChanged, map[string]string{v1alpha1.AnnotationNewMachinesOnly: "infrastructure/spec/im,infrastructure/spec/vm,bootstrap"}, nil,
			"no updater covers infrastructure/spec/image:", v1alpha1.ReasonNoUpdater, []string{"infrastructure/spec/image"}},
		"the version itself is never for new machines only": {`{"newMachinesOnly":"machine"}`, same, strings.Replace(version136, "1.36", "1.38", 1), nil, nil, "machine/spec/version", v1alpha1.ReasonNoUpdater, []string{capidiff.PathVersion}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestClusters(t)
			for k, v := range tc.annotation {
				o := object(kindDeployment, "pool", nil, nil)
				if err := w.mgmt.Get(t.Context(), keyOf(o), o); err != nil {
					t.Fatal(err)
				}
				w.annotate(o, k, v)
			}
			a := w.ask(hooks.CanUpdateMachineSet, claim(tc.settings, tc.current, tc.desired))
			if a.Failed != (tc.refused != "") || !strings.Contains(a.Message, tc.refused) || strings.Contains(a.Message, "hunter2") {
				t.Errorf("refused %v: %q, want %q", a.Failed, a.Message, tc.refused)
			}
			if again := w.ask(hooks.CanUpdateMachineSet, claim(tc.settings, tc.current, tc.desired)); again.Message != a.Message {
				t.Errorf("the same question has another answer: %q, %q", a.Message, again.Message)
			}
			got := map[string]string{}
			for role, p := range a.Patches {
				got[role] = string(p.Patch)
			}
			if tc.patches == nil {
				tc.patches = map[string]string{}
			}
			if diff := cmp.Diff(tc.patches, got); diff != "" {
				t.Error("patches (-want +got):", diff)
			}
			plan := w.plan("machinedeployment.pool")
			var paths []string
			for _, u := range plan.Status.Uncovered {
				paths = append(paths, u.Path)
			}
			c := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionCovered)
			if diff := cmp.Diff(tc.uncovered, paths); diff != "" || c == nil || c.Reason != tc.reason {
				t.Errorf("the plan says %+v, want %s; paths (-want +got): %s", c, tc.reason, diff)
			}
			if len(plan.OwnerReferences) != 1 || plan.OwnerReferences[0].UID != "uid-pool" {
				t.Errorf("the plan goes with its pool: %+v", plan.OwnerReferences)
			}
			if n := len(w.recorder.Events); n > 2 {
				t.Errorf("%d events for one plan that was asked about twice", n)
			}
		})
	}
}

// Without a record and without the settings nothing is answered but a refusal:
// neither path of Cluster API goes on then.
func TestNoAnswerWithoutRecord(t *testing.T) {
	t.Parallel()
	for fail, want := range map[string]string{"status InPlacePlan": "cannot be written, and refit changes nothing", "get MachineDeployment": "failed to read MachineDeployment default/pool"} {
		w := newTestClusters(t)
		w.fail[fail] = errors.New("token=hunter2")
		a := w.ask(hooks.CanUpdateMachineSet, claim("", same, version136))
		if !a.Failed || !strings.Contains(a.Message, want) || strings.Contains(a.Message, "hunter2") {
			t.Errorf("%s: %+v", fail, a)
		}
		delete(w.fail, fail)
		if a := w.ask(hooks.CanUpdateMachineSet, claim("", same, version136)); a.Failed {
			t.Errorf("%s: it goes on by itself afterwards: %+v", fail, a)
		}
	}
}

func TestAControlPlaneIsAskedMachineByMachine(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	m := func(version, domain string) string {
		return `{"machine":{"metadata":{"namespace":"default","name":"cp-1","labels":{"cluster.x-k8s.io/control-plane":"","cluster.x-k8s.io/control-plane-name":"cp"}},"spec":{"clusterName":"c1","version":"` + version + `","failureDomain":"` + domain + `"}}}`
	}
	body := func(from, to string) string {
		return `{` + apiVersion + `,"kind":"CanUpdateMachineRequest","current":` + from + `,"desired":` + to + `}`
	}
	a := w.ask(hooks.CanUpdateMachine, body(m(oldVersion, "a"), m(newVersion, "a")))
	if a.Failed || string(a.Patches[capidiff.Machine].Patch) != `[{"op":"replace","path":"/spec/version","value":"v1.36.3"}]` || a.Harmless {
		t.Errorf("%+v", a)
	}
	if p := w.plan("kubeadmcontrolplane.cp"); p.Status.From != oldVersion || p.Status.To != newVersion || p.Spec.Cluster != "c1" {
		t.Errorf("%+v", p)
	}
	a = w.ask(hooks.CanUpdateMachine, body(m(oldVersion, "a"), m(newVersion, "b")))
	if why := w.plan("kubeadmcontrolplane.cp").Status.Uncovered; !a.Failed || len(why) != 1 || why[0].Path != "machine/spec/failureDomain" || why[0].Why != "kubernetes: a running machine cannot move to another failure domain" {
		t.Errorf("%+v %+v", a, why)
	}
	const boot = `"bootstrapConfig":{"apiVersion":"` + bootstrapGroup + `/v1","kind":"KubeadmConfig","metadata":{"namespace":"default","name":"cp-1-boot"}`
	refers := func(m string) string {
		return strings.Replace(m, `"clusterName"`, `"bootstrap":{"configRef":{"apiGroup":"`+bootstrapGroup+`","kind":"KubeadmConfig","name":"cp-1-boot"}},"clusterName"`, 1)
	}
	gate := func(m, config string) string {
		return strings.TrimSuffix(refers(m), "}") + `,` + boot + `,"spec":{` + config + `}}}`
	}
	localMode := `"clusterConfiguration":{"featureGates":{"ControlPlaneKubeletLocalMode":true}}`
	a = w.ask(hooks.CanUpdateMachine, body(gate(m(oldVersion, "a"), localMode), gate(m(newVersion, "a"), ``)))
	if got := string(a.Patches[capidiff.Bootstrap].Patch); a.Failed || got != `[{"op":"remove","path":"/spec/clusterConfiguration"}]` {
		t.Errorf("what Cluster API drops with the version goes with it (seen with v1.13.4 from 1.35 to 1.36): %s %+v", got, a)
	}
	if a := w.ask(hooks.CanUpdateMachine, body(gate(m(newVersion, "a"), localMode), gate(m(newVersion, "a"), ``))); !a.Failed {
		t.Errorf("by itself it is a change like any other: %+v", a)
	}
	if a := w.ask(hooks.CanUpdateMachine, body(gate(m(newVersion, "a"), ""), refers(m(newVersion, "a")))); !a.Failed || !strings.Contains(a.Message, "bootstrap") {
		t.Errorf("an object on one side only is not covered by leaving it out: %+v", a)
	}
	stray := `{"machine":{"metadata":{"namespace":"default","name":"x"},"spec":{}}}`
	if a := w.ask(hooks.CanUpdateMachine, body(stray, stray)); !a.Failed || !strings.Contains(a.Message, "Machine default/x does not name its pool") {
		t.Errorf("%+v", a)
	}
}

func TestWhatIsNoRequestIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	if code, text := w.post(w.s, hooks.UpdateMachine, "hunter2"); code != 400 || strings.Contains(text, "hunter2") {
		t.Errorf("%d %s", code, text)
	}
}
