package machinekinds_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, raw)
}

const (
	capi      = "cluster.x-k8s.io"
	openshift = "machine.openshift.io"
)

// What an object says of itself.
func TestFacts(t *testing.T) {
	t.Parallel()
	table := machinekinds.BuiltIn()
	for name, tc := range map[string]struct {
		group, kind, object string
		check               func(machinekinds.Facts) bool
	}{
		"a MachineDeployment replaces when it rolls": {capi, "MachineDeployment", `{spec: {rollout: {strategy: {type: RollingUpdate}}, template: {spec: {version: v1.35.4}}}}`,
			func(f machinekinds.Facts) bool { return f.Effect == machinekinds.Replaces && f.Version == "v1.35.4" }},
		"and by default":                         {capi, "MachineDeployment", `{spec: {}}`, func(f machinekinds.Facts) bool { return f.Effect == machinekinds.Replaces }},
		"OnDelete is for new machines (v1beta2)": {capi, "MachineDeployment", `{spec: {rollout: {strategy: {type: OnDelete}}}}`, func(f machinekinds.Facts) bool { return f.Effect == machinekinds.NewMachines }},
		"OnDelete is for new machines (v1beta1)": {capi, "MachineDeployment", `{spec: {strategy: {type: OnDelete}}}`, func(f machinekinds.Facts) bool { return f.Effect == machinekinds.NewMachines }},
		"a Cluster owns for clean-up only":       {capi, "MachineDeployment", `{metadata: {ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, name: c1}]}}`, func(f machinekinds.Facts) bool { return f.Owner == "" && f.PartOf == "" }},
		"a topology writes it":                   {capi, "MachineDeployment", `{metadata: {labels: {topology.cluster.x-k8s.io/owned: ""}}}`, func(f machinekinds.Facts) bool { return strings.Contains(f.Owner, "topology.cluster") }},
		"a set of a deployment is part of it":    {capi, "MachineSet", `{metadata: {ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, name: w}]}}`, func(f machinekinds.Facts) bool { return f.PartOf == "MachineDeployment/w" }},
		"a set of nobody is for new machines":    {capi, "MachineSet", `{}`, func(f machinekinds.Facts) bool { return f.Effect == machinekinds.NewMachines && f.PartOf == "" }},
		"a control plane replaces":               {"controlplane." + capi, "KubeadmControlPlane", `{spec: {version: v1.36.3}}`, func(f machinekinds.Facts) bool { return f.Effect == machinekinds.Replaces && f.Version == "v1.36.3" }},
		"a control plane of RKE2 replaces": {"controlplane." + capi, "RKE2ControlPlane", `{spec: {version: v1.36.3+rke2r1}}`, func(f machinekinds.Facts) bool {
			return f.Effect == machinekinds.Replaces && f.Version == "v1.36.3+rke2r1"
		}},
		"a control plane of k0s replaces": {"controlplane." + capi, "K0sControlPlane", `{spec: {version: v1.36.3+k0s.0, updateStrategy: InPlace}}`, func(f machinekinds.Facts) bool {
			return f.Effect == machinekinds.Replaces && f.Version == "v1.36.3+k0s.0"
		}},
		"a set of another tool":            {openshift, "MachineSet", `{metadata: {ownerReferences: [{apiVersion: hive.openshift.io/v1, kind: MachinePool, name: p}]}}`, func(f machinekinds.Facts) bool { return f.Owner == "MachinePool/p" }},
		"Windows is none of ours":          {openshift, "MachineSet", `{spec: {template: {metadata: {labels: {machine.openshift.io/os-id: Windows}}}}}`, func(f machinekinds.Facts) bool { return strings.Contains(f.Excluded, "Windows") }},
		"another API is authoritative":     {openshift, "MachineSet", `{spec: {authoritativeAPI: ClusterAPI}}`, func(f machinekinds.Facts) bool { return strings.Contains(f.Excluded, "authoritative") }},
		"the OS stream by its label":       {openshift, "MachineSet", `{metadata: {labels: {machineconfiguration.openshift.io/osstream: rhel-10}}}`, func(f machinekinds.Facts) bool { return f.OSStream == "rhel-10" }},
		"a control-plane set that rolls":   {openshift, "ControlPlaneMachineSet", `{spec: {strategy: {type: RollingUpdate}}}`, func(f machinekinds.Facts) bool { return f.Effect == machinekinds.Replaces }},
		"a control-plane set on delete":    {openshift, "ControlPlaneMachineSet", `{spec: {strategy: {type: OnDelete}}}`, func(f machinekinds.Facts) bool { return f.Effect == machinekinds.NewMachines }},
		"an architecture":                  {openshift, "MachineSet", `{metadata: {annotations: {capacity.cluster-autoscaler.kubernetes.io/labels: "x=y, kubernetes.io/arch=arm64"}}}`, func(f machinekinds.Facts) bool { return f.Architecture == "arm64" && f.ArchitectureErr == nil }},
		"no statement of one":              {openshift, "MachineSet", `{}`, func(f machinekinds.Facts) bool { return f.Architecture == "" && f.ArchitectureErr == nil }},
		"labels without one are a mistake": {openshift, "MachineSet", `{metadata: {annotations: {capacity.cluster-autoscaler.kubernetes.io/labels: "x=y"}}}`, func(f machinekinds.Facts) bool { return f.ArchitectureErr != nil }},
		"it goes away":                     {openshift, "MachineSet", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`, func(f machinekinds.Facts) bool { return f.Deleting }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := table.Manager(tc.group, tc.kind)
			if m == nil {
				t.Fatal("no row")
			}
			if f := table.Facts(m, object(t, tc.object)); !tc.check(f) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A rollout is seen by its counts and its condition, in each version of Cluster API. Machines
// that stay by OnDelete are no rollout.
func TestRollingOut(t *testing.T) {
	t.Parallel()
	table := machinekinds.BuiltIn()
	for name, tc := range map[string]struct {
		group, kind, object string
		want                bool
	}{
		"nothing is reported":            {capi, "MachineDeployment", `{metadata: {generation: 3}}`, false},
		"all machines are up to date":    {capi, "MachineDeployment", `{metadata: {generation: 3}, status: {observedGeneration: 3, replicas: 3, upToDateReplicas: 3}}`, false},
		"one is not":                     {capi, "MachineDeployment", `{metadata: {generation: 3}, status: {observedGeneration: 3, replicas: 3, upToDateReplicas: 2}}`, true},
		"none is":                        {capi, "MachineDeployment", `{status: {replicas: 3, upToDateReplicas: 0}}`, true},
		"no machine":                     {capi, "MachineDeployment", `{status: {replicas: 0, upToDateReplicas: 0}}`, false},
		"in an earlier version":          {capi, "MachineDeployment", `{status: {replicas: 3, updatedReplicas: 2}}`, true},
		"by the condition":               {capi, "MachineDeployment", `{status: {conditions: [{type: Ready, status: "True"}, {type: RollingOut, status: "True"}]}}`, true},
		"the condition has ended":        {capi, "MachineDeployment", `{status: {conditions: [{type: RollingOut, status: "False"}]}}`, false},
		"by the condition, v1beta1":      {capi, "Cluster", `{status: {v1beta2: {conditions: [{type: RollingOut, status: "True"}]}}}`, true},
		"the last change is not seen":    {"controlplane." + capi, "KubeadmControlPlane", `{metadata: {generation: 4}, status: {observedGeneration: 3, replicas: 3, upToDateReplicas: 3}}`, true},
		"a control plane of RKE2":        {"controlplane." + capi, "RKE2ControlPlane", `{status: {conditions: [{type: RollingOut, status: "True"}]}}`, true},
		"a control plane of k3s":         {"controlplane." + capi, "KThreesControlPlane", `{status: {replicas: 3, updatedReplicas: 1}}`, true},
		"a control plane of k0s is done": {"controlplane." + capi, "K0sControlPlane", `{status: {replicas: 3, upToDateReplicas: 3}}`, false},
		"OnDelete leaves machines alone": {capi, "MachineDeployment", `{spec: {rollout: {strategy: {type: OnDelete}}}, status: {replicas: 3, upToDateReplicas: 1, conditions: [{type: RollingOut, status: "True"}]}}`, false},
		"a set replaces nothing":         {capi, "MachineSet", `{metadata: {generation: 4}, status: {observedGeneration: 3, replicas: 3}}`, false},
		"a control-plane set":            {openshift, "ControlPlaneMachineSet", `{status: {replicas: 3, updatedReplicas: 1}}`, true},
	} {
		if got := table.Facts(table.Manager(tc.group, tc.kind), object(t, tc.object)).RollingOut; got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Where the image of each manager is.
func TestHolder(t *testing.T) {
	t.Parallel()
	table := machinekinds.BuiltIn()
	for name, tc := range map[string]struct{ group, kind, object, want, err string }{
		"a template, by group": {capi, "MachineDeployment", `{spec: {template: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSMachineTemplate, name: w}}}}}`,
			"AWSMachineTemplate/w at spec.template.spec.infrastructureRef.name", ""},
		"a template, by version": {"controlplane." + capi, "KubeadmControlPlane", `{spec: {machineTemplate: {infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: cp}}}}`,
			"VSphereMachineTemplate/cp at spec.machineTemplate.infrastructureRef.name", ""},
		"RKE2, v1beta2": {"controlplane." + capi, "RKE2ControlPlane", `{spec: {machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereMachineTemplate, name: cp}}}}}`, "VSphereMachineTemplate/cp at spec.machineTemplate.spec.infrastructureRef.name", ""},
		"RKE2, v1beta1": {"controlplane." + capi, "RKE2ControlPlane", `{spec: {infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: cp}}}`, "VSphereMachineTemplate/cp at spec.infrastructureRef.name", ""},
		"k3s, v1beta1":  {"controlplane." + capi, "KThreesControlPlane", `{spec: {infrastructureTemplate: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: cp}}}`, "VSphereMachineTemplate/cp at spec.infrastructureTemplate.name", ""},
		"k0s":           {"controlplane." + capi, "K0sControlPlane", `{spec: {machineTemplate: {infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, name: cp}}}}`, "VSphereMachineTemplate/cp at spec.machineTemplate.infrastructureRef.name", ""},
		"within a set":  {openshift, "MachineSet", `{spec: {template: {spec: {providerSpec: {value: {kind: GCPMachineProviderSpec}}}}}}`, "GCPMachineProviderSpec in spec.template.spec.providerSpec.value", ""},
		"within a control-plane set": {openshift, "ControlPlaneMachineSet", `{spec: {template: {machines_v1beta1_machine_openshift_io: {spec: {providerSpec: {value: {kind: AWSMachineProviderConfig}}}}}}}`,
			"AWSMachineProviderConfig in spec.template.machines_v1beta1_machine_openshift_io.spec.providerSpec.value", ""},
		"the object itself":          {"karpenter.k8s.aws", "EC2NodeClass", `{}`, "EC2NodeClass itself", ""},
		"a provider without a row":   {openshift, "MachineSet", `{spec: {template: {spec: {providerSpec: {value: {kind: MyProviderSpec}}}}}}`, "", `"MyProviderSpec", for which there is no row`},
		"a template without a row":   {capi, "MachineDeployment", `{spec: {template: {spec: {infrastructureRef: {apiGroup: g, kind: T, name: w}}}}}`, "", "T.g, for which there is no row"},
		"no reference":               {capi, "MachineDeployment", `{}`, "", "refers to no template"},
		"a reference without a name": {capi, "MachineDeployment", `{spec: {template: {spec: {infrastructureRef: {kind: T}}}}}`, "", "names no object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := table.Holder(table.Manager(tc.group, tc.kind), object(t, tc.object))
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%v, want %q", err, tc.err)
			}
			if err != nil {
				return
			}
			got := h.Row.Kind
			switch {
			case h.Name != "":
				got += "/" + h.Name + " at " + h.NamePath
			case h.Part != "":
				got += " in " + h.Part
			default:
				got += " itself"
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// SecurityType is left alone; AWSMachinePool decides itself what a change does.
func TestImageKindsSayMore(t *testing.T) {
	t.Parallel()
	table := machinekinds.BuiltIn()
	r, err := table.Image("", "AzureMachineProviderSpec").Read(object(t, `{securityProfile: {settings: {securityType: TrustedLaunch}}, location: westeurope, userDataSecret: {name: u}}`), "")
	if err != nil || !strings.Contains(r.Excluded, "trusted launch") || r.Region != "westeurope" || r.UserData != "u" {
		t.Errorf("%+v %v", r, err)
	}
	for kind, at := range map[string]string{"AzureMachineTemplate": `{spec: {template: {spec: %s}}}`, "AzureMachinePool": `{spec: {template: %s}}`} {
		row := table.Image("infrastructure."+capi, kind)
		for spec, want := range map[string]string{`{securityProfile: {securityType: TrustedLaunch}}`: "trusted launch", `{securityProfile: {securityType: ConfidentialVM}}`: "confidential",
			`{osDisk: {osType: Windows}}`: "run Windows", `{securityProfile: {encryptionAtHost: true}, osDisk: {osType: Linux}}`: ""} {
			r, err := row.Read(object(t, fmt.Sprintf(at, spec)), "")
			if err != nil || (r.Excluded == "") != (want == "") || !strings.Contains(r.Excluded, want) {
				t.Errorf("%s %s: %+v %v", kind, spec, r, err)
			}
		}
	}
	for o, fromRelease := range map[string]bool{`{customDeploy: {method: install_coreos}, image: {url: "", checksum: ""}}`: true, `{image: {url: "http://10.0.0.1/rhcos.qcow2.gz", checksum: a}}`: false} {
		if r, err := table.Image("", "BareMetalMachineProviderSpec").Read(object(t, o), ""); err != nil || r.FromRelease != fromRelease || (r.Excluded != "") != fromRelease {
			t.Errorf("%s: %+v %v", o, r, err)
		}
	}
	if r, err := table.Image("infrastructure."+capi, "IBMVPCMachineTemplate").Read(object(t, `{spec: {template: {spec: {catalogOffering: {offeringCRN: c}}}}}`), ""); err != nil || !strings.Contains(r.Excluded, "catalog") {
		t.Errorf("%+v %v", r, err)
	}
	pool := table.Image("infrastructure."+capi, "AWSMachinePool")
	for want, o := range map[string]string{machinekinds.NewMachines: `{spec: {refreshPreferences: {disable: true}}}`, machinekinds.Replaces: `{spec: {refreshPreferences: {disable: false}}}`} {
		if r, err := pool.Read(object(t, o), ""); err != nil || r.Effect != want {
			t.Errorf("%+v %v, want %s", r, err, want)
		}
	}
}
