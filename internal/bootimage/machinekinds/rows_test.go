package machinekinds_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

// fixture is a realistic object of a row, and what a write of an image changes.
type fixture struct {
	Row        struct{ Group, Kind string } `json:"row"`
	Part       string                       `json:"part"`
	Attributes map[string]string            `json:"attributes"`
	// Changes by JSON pointer; null is taken away.
	Changes map[string]*string `json:"changes"`
	Object  json.RawMessage    `json:"object"`
}

func fixtures(t *testing.T) map[string]fixture {
	t.Helper()
	files, err := filepath.Glob("testdata/rows/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	out := map[string]fixture{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var x fixture
		if err := yaml.UnmarshalStrict(data, &x); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".yaml")] = x
	}
	return out
}

func decode(t testing.TB, data []byte) map[string]any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// leaves of an object by JSON pointer.
func leaves(v any, at string, out map[string]string) {
	switch x := v.(type) {
	case map[string]any:
		for k, y := range x {
			leaves(y, at+"/"+strings.ReplaceAll(strings.ReplaceAll(k, "~", "~0"), "/", "~1"), out)
		}
	case []any:
		for i, y := range x {
			leaves(y, at+"/"+string(rune('0'+i)), out)
		}
	}
	raw, _ := json.Marshal(v)
	switch v.(type) {
	case map[string]any, []any:
		if len(raw) == 2 {
			out[at] = string(raw)
		}
	default:
		out[at] = string(raw)
	}
}

// Every row: a write changes the image and not a byte more, as the API server
// would apply it (A5); written twice it is nothing.
func TestEveryRowChangesOnlyTheImage(t *testing.T) {
	t.Parallel()
	table := machinekinds.BuiltIn()
	type used struct {
		row  string
		form int
	}
	seen := map[string]bool{}
	for name, fx := range fixtures(t) {
		seen[fx.Row.Group+"/"+fx.Row.Kind] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := table.Image(fx.Row.Group, fx.Row.Kind)
			if row == nil {
				t.Fatal("there is no such row")
			}
			before := decode(t, fx.Object)
			e := machinekinds.NewEdit(before)
			if err := row.Write(e, fx.Part, fx.Attributes); err != nil {
				t.Fatal(err)
			}
			patch, err := e.JSON("")
			if err != nil {
				t.Fatal(err)
			}
			p, err := jsonpatch.DecodePatch(patch)
			if err != nil {
				t.Fatal(err)
			}
			after, err := p.Apply(fx.Object)
			if err != nil {
				t.Fatalf("%s does not apply: %v", patch, err)
			}
			a, b := map[string]string{}, map[string]string{}
			leaves(decode(t, fx.Object), "", a)
			leaves(decode(t, after), "", b)
			want := map[string]string{}
			for k, v := range a {
				want[k] = v
			}
			for pointer, v := range fx.Changes {
				for k := range want {
					if k == pointer || strings.HasPrefix(k, pointer+"/") {
						delete(want, k)
					}
				}
				if v != nil {
					raw, _ := json.Marshal(*v)
					want[pointer] = string(raw)
				}
			}
			if diff := cmp.Diff(want, b); diff != "" {
				t.Errorf("(-want +got): %s", diff)
			}
			if diff := cmp.Diff(decode(t, after), e.Object); diff != "" {
				t.Errorf("the edited copy is not what the patch makes: %s", diff)
			}
			if diff := cmp.Diff(decode(t, fx.Object), before); diff != "" {
				t.Errorf("the object that was given was changed: %s", diff)
			}
			again := machinekinds.NewEdit(e.Object)
			if err := row.Write(again, fx.Part, fx.Attributes); err != nil || again.Changed() {
				t.Errorf("a second write: %v %v", err, again.Ops())
			}
			ref, err := row.Read(e.Object, fx.Part)
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range ref.Attributes {
				if fx.Attributes[k] != v {
					t.Errorf("read back %s=%s, written %s", k, v, fx.Attributes[k])
				}
			}
			if needs := row.Needs(e.Object, fx.Part); len(needs) != len(ref.Attributes) {
				t.Errorf("needs %v, read %v", needs, ref.Attributes)
			}
		})
	}
	for _, k := range table.Images {
		if !seen[k.Group+"/"+k.Kind] {
			t.Errorf("row %s %s has no fixture", k.Group, k.Kind)
		}
	}
	// every form of every row as well
	forms := map[used]bool{}
	for _, fx := range fixtures(t) {
		row := table.Image(fx.Row.Group, fx.Row.Kind)
		forms[used{fx.Row.Group + "/" + fx.Row.Kind, row.FormOf(decode(t, fx.Object), fx.Part)}] = true
	}
	for _, k := range table.Images {
		for i := range k.Forms {
			if !forms[used{k.Group + "/" + k.Kind, i}] {
				t.Errorf("form %d of row %s has no fixture", i, k.Kind)
			}
		}
	}
}

// The tests in a patch refuse it after another writer changed the object.
func TestAPatchTestsWhatWasSeen(t *testing.T) {
	t.Parallel()
	fx := fixtures(t)["gcp-machine-template"]
	e := machinekinds.NewEdit(decode(t, fx.Object))
	if err := machinekinds.BuiltIn().Image(fx.Row.Group, fx.Row.Kind).Write(e, "", fx.Attributes); err != nil {
		t.Fatal(err)
	}
	patch, err := e.JSON("8123")
	if err != nil {
		t.Fatal(err)
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(fx.Object); err != nil {
		t.Errorf("what was seen is there: %v", err)
	}
	for name, from := range map[string]string{"another image": "projects/old/global/images/rhcos-1", "another resourceVersion": `"8123"`} {
		to := strings.Replace(from, "1", "9", 1)
		if _, err := p.Apply(bytes.Replace(fx.Object, []byte(from), []byte(to), 1)); err == nil {
			t.Errorf("%s is written over", name)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	table := machinekinds.BuiltIn()
	for name, tc := range map[string]struct{ fixture, part, attribute, object, want string }{
		"an attribute missing from the stream": {"vsphere-machine-template", "", "", "", `has no attribute "template"`},
		"two terms of a node class":            {"ec2-node-class-id", "", "image", `{"spec":{"amiSelectorTerms":[{"id":"a"},{"id":"b"}]}}`, "there is no spec.amiSelectorTerms[only].id"},
		"no boot disk":                         {"openshift-gcp", "v", "selfLink", `{"v":{"disks":[{"boot":false}]}}`, "there is no disks[boot=true].image"},
		"a part that is not there":             {"openshift-gcp", "v", "selfLink", `{}`, "there is no v"},
		"a variable that is not there":         {"cluster-topology", "", "image", `{"spec":{"topology":{"variables":[{"name":"x"}]}}}`, "there is no spec.topology.variables[name=bootImage].value"},
		"a topology that is not there":         {"cluster-topology", "", "image", `{"spec":{}}`, "there is no spec.topology.variables[name=bootImage].value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fx := fixtures(t)[tc.fixture]
			o := fx.Object
			if tc.object != "" {
				o = []byte(tc.object)
			}
			attributes := map[string]string{}
			if tc.attribute != "" {
				attributes[tc.attribute] = "x"
			}
			e := machinekinds.NewEdit(decode(t, o))
			err := table.Image(fx.Row.Group, fx.Row.Kind).Write(e, tc.part, attributes)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q; %v", err, tc.want, e.Ops())
			}
		})
	}
}

// The table is sound, and rows of users are read strictly.
func TestRows(t *testing.T) {
	t.Parallel()
	table := machinekinds.BuiltIn()
	var managers []string
	for _, m := range table.Managers {
		managers = append(managers, m.Kind)
		if m.Itself && table.Image(m.Group, m.Kind) == nil {
			t.Errorf("%s holds its image itself and has no row for it", m.Kind)
		}
	}
	sort.Strings(managers)
	if diff := cmp.Diff([]string{"Cluster", "ControlPlaneMachineSet", "EC2NodeClass", "K0sControlPlane", "KThreesControlPlane", "KubeadmControlPlane", "MachineDeployment", "MachinePool", "MachineSet", "MachineSet", "RKE2ControlPlane"}, managers); diff != "" {
		t.Error(diff)
	}
	mine, err := machinekinds.Parse([]byte(`
images:
- {group: infrastructure.cluster.x-k8s.io, kind: MyTemplate, versions: [v1], platform: mine, immutable: true, schema: ours, forms: [{set: [{path: spec.image, from: image}]}]}
- {group: infrastructure.cluster.x-k8s.io, kind: GCPMachineTemplate, versions: [v1beta1], platform: gcp, immutable: true, schema: ours, forms: [{set: [{path: spec.template.spec.imageFamily, from: family}]}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	both := table.With(mine)
	if both.Image("infrastructure.cluster.x-k8s.io", "MyTemplate") == nil || both.Manager("cluster.x-k8s.io", "MachineSet") == nil {
		t.Error("rows are lost")
	}
	if k := both.Image("infrastructure.cluster.x-k8s.io", "GCPMachineTemplate"); k.Forms[0].Set[0].From != "family" || len(both.Images) != len(table.Images)+1 {
		t.Error("a row of a user counts before ours")
	}
	const image = `images: [{group: g, kind: K, versions: [v1], schema: s, `
	for name, tc := range map[string]struct{ rows, want string }{
		"an unknown word":            {`image: []`, `unknown field "image"`},
		"no path":                    {image + `forms: [{set: [{from: a}]}]}]`, "a field has a path"},
		"a path that ends in a dot":  {image + `forms: [{set: [{path: "a.", from: a}]}]}]`, "a name is missing"},
		"a bracket that stays open":  {image + `forms: [{set: [{path: "a[b", from: a}]}]}]`, "has no ]"},
		"an unknown choice":          {image + `forms: [{set: [{path: "a[0]", from: a}]}]}]`, "neither [only]"},
		"nothing from the stream":    {image + `forms: [{set: [{path: a, value: b}]}]}]`, "names an attribute"},
		"an unknown effect":          {image + `effect: Nothing, forms: [{set: [{path: a, from: b}]}]}]`, `effect "Nothing"`},
		"a form behind the last one": {image + `forms: [{set: [{path: a, from: b}]}, {set: [{path: a, from: b}]}]}]`, "the last form"},
		"no versions":                {`images: [{group: g, kind: K, schema: s, forms: [{set: [{path: a, from: b}]}]}]`, "versions unless it is embedded"},
		"a manager of two ways":      {`managers: [{group: g, kind: K, versions: [v1], schema: s, effect: Replaces, itself: true, embedded: a}]`, "exactly one of"},
		"a manager without effect":   {`managers: [{group: g, kind: K, versions: [v1], schema: s, itself: true}]`, `effect ""`},
		"an exclusion without why":   {`managers: [{group: g, kind: K, versions: [v1], schema: s, effect: Replaces, itself: true, exclude: [{path: a}]}]`, "a path and a why"},
	} {
		if _, err := machinekinds.Parse([]byte(tc.rows)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
