package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

func d(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

var declared = Config{Schemes: []Declared{{Repository: "reg.example/net/*", Scheme: "rev"}}}

// sites that a rule's vectors are for.
var sites = map[string]Site{
	"T03": {Offline: true, Bundle: map[string]string{"reg.example/web:1.0": d("b")}},
	"T05": {Published: map[string]model.Published{"reg.example/web:1.0": {Digest: d("b"), Same: []string{d("c")}}}},
	"T06": {Offline: true, Bundle: map[string]string{"reg.example/web:1.0": d("b")}},
	"T10": {Offline: true},
	"T13": {Offline: true},
	"T15": {Offline: true},
	"T16": {Offline: true},
	"T14": {Nodes: []model.ImageNode{
		{Name: "n1", Complete: true, Labels: map[string]string{"kubernetes.io/hostname": "n1"}, Images: []model.CachedImage{{Names: []string{"reg.example/web:1.0"}}}},
		{Name: "n2", Complete: true, Labels: map[string]string{"kubernetes.io/hostname": "n2"}},
		{Name: "n3", Complete: true, Taints: []model.Taint{{Key: "only-some", Effect: "NoSchedule"}}}}},
}

var want = regexp.MustCompile(`# want (T\d\d) (\w+)$`)

// TestVectors: every line of a vector that says "# want" has that finding, and no
// other line has one of the rule.
func TestVectors(t *testing.T) {
	t.Parallel()
	for _, r := range Rules() {
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("testdata", r.ID+".yaml")
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := Parse(file, data)
			if err != nil {
				t.Fatal(err)
			}
			var expected, got []string
			good := false
			for i, line := range strings.Split(string(data), "\n") {
				if m := want.FindStringSubmatch(line); m != nil {
					expected = append(expected, fmt.Sprintf("%s:%d %s %s", file, i+1, m[1], m[2]))
				}
				good = good || strings.Contains(line, "image: ") && !strings.Contains(line, "# want") || strings.Contains(line, "kind: KubeletConfiguration")
			}
			rep := Check(objects, sites[r.ID], declared)
			for _, f := range slices.Concat(rep.Findings, rep.Off) {
				if f.Rule != r.ID {
					continue
				}
				word := string(f.Severity)
				if f.Off != "" {
					word = "off"
				}
				got = append(got, fmt.Sprintf("%s:%d %s %s", f.File, f.Line, f.Rule, word))
				if f.Message == "" || f.Fix == "" || f.Object == "" {
					t.Errorf("a finding must say what, where and what next: %+v", f)
				}
			}
			slices.Sort(expected)
			slices.Sort(got)
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Error(diff)
			}
			if len(expected) == 0 || !good {
				t.Errorf("%s needs vectors that are found and vectors that are not", file)
			}
		})
	}
}

// Facts that no manifest has.
func TestSiteFacts(t *testing.T) {
	t.Parallel()
	pod := func(image string) Object {
		return Object{Kind: "Deployment", Namespace: "shop", Name: "web", Replicas: 2, Surges: true,
			Uses: []Use{{ImageUse: model.ImageUse{Container: "web", Image: image, Policy: model.PullIfNotPresent}}}}
	}
	for sentence, c := range map[string]struct {
		objects []Object
		site    Site
		want    []string
	}{
		"a digest that the registry let go is a warning where it can be asked": {[]Object{pod("reg.example/web@" + d("a"))},
			Site{GoneDigests: map[string]bool{"reg.example/web@" + d("a"): true}}, []string{"T06 warning"}},
		"and an error where it cannot": {[]Object{pod("reg.example/web@" + d("a"))},
			Site{Offline: true, GoneDigests: map[string]bool{"reg.example/web@" + d("a"): true}}, []string{"T06 error"}},
		"a tag that is gone": {[]Object{pod("reg.example/net/web:1-rev1-b1")}, Site{Published: map[string]model.Published{"reg.example/net/web:1-rev1-b1": {Gone: true}}}, []string{"T06 warning"}},
		"images of the bundle that a node does not pin": {nil, Site{Bundle: map[string]string{"reg.example/web:1": d("a")}, Nodes: []model.ImageNode{
			{Name: "n1", PinnedKnown: true, Images: []model.CachedImage{{Names: []string{"reg.example/web:1"}}}},
			{Name: "n2", PinnedKnown: true, Images: []model.CachedImage{{Names: []string{"reg.example/web:1"}, Pinned: true}}},
			{Name: "n3", Images: []model.CachedImage{{Names: []string{"reg.example/web:1"}}}}}}, []string{"T11 warning"}},
		"one image under two repositories of a bundle":                        {nil, Site{Bundle: map[string]string{"a.example/web:1": d("a"), "b.example/web:1": d("a"), "a.example/web:2": d("a")}}, []string{"T10 warning"}},
		"AlwaysPullImages of a cluster whose API server has no manifest here": {nil, Site{Offline: true, AlwaysPull: true}, []string{"T13 error"}},
		"a webhook that resolves tags is worth knowing where registries are":  {[]Object{{Kind: "MutatingWebhookConfiguration", Name: "kyverno-x", Hooks: []Hook{{Name: "m", AsksPods: true, FailsClosed: true}}}}, Site{}, []string{"T15 info"}},
		"an unknown webhook is not, there":                                    {[]Object{{Kind: "MutatingWebhookConfiguration", Name: "x", Hooks: []Hook{{Name: "m", AsksPods: true, Mutating: true}}}}, Site{}, nil},
		"a controller that follows tags is worth knowing there":               {[]Object{pod("ghcr.io/keel-hq/keel@" + d("a"))}, Site{}, []string{"T16 info"}},
		"AlwaysPullImages where registries are is no finding":                 {nil, Site{AlwaysPull: true}, nil},
		"a kubelet of 1.34 compares no credentials":                           {[]Object{{Kind: "Node", Name: "n1", Kubelet: &Kubelet{Version: "v1.34.2", Verification: "AlwaysVerify"}}}, Site{Offline: true}, nil},
		"a kubelet of 1.35 does":                                              {[]Object{{Kind: "Node", Name: "n1", Kubelet: &Kubelet{Version: "v1.35.0", Verification: "AlwaysVerify"}}}, Site{Offline: true}, []string{"T10 warning"}},
		"which does not matter where registries are":                          {[]Object{{Kind: "Node", Name: "n1", Kubelet: &Kubelet{Version: "v1.35.0", Verification: "AlwaysVerify"}}}, Site{}, nil},
		"a tag that is not of its scheme is an error for who publishes it":    {[]Object{pod("reg.example/net/web:1-rev1-b")}, Site{Publishing: true}, []string{"T09 error"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, f := range Check(c.objects, c.site, declared).Findings {
				got = append(got, f.Rule+" "+string(f.Severity))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct{ text, wrong string }{
		"an empty file is a configuration":         {"", ""},
		"a rule is switched off with a reason":     {"off: [{rule: T04, reason: by digest from CI, objects: [Deployment/shop/*]}]", ""},
		"a rule without a reason is refused":       {"off: [{rule: T04}]", "without a reason"},
		"a rule that does not exist is refused":    {"off: [{rule: T99, reason: x}]", "no rule"},
		"a word that is not known is refused":      {"offf: []", "not found"},
		"a scheme that does not exist is refused":  {"schemes: [{repository: a, scheme: x}]", "not known"},
		"a scheme for no repository is refused":    {"schemes: [{scheme: rev}]", "no repository"},
		"a window that is no time is refused":      {"rollbackWindow: soon", "720h"},
		"offline, a window and a scheme are read":  {"offline: true\nrollbackWindow: 48h\nschemes: [{repository: a.example/*, scheme: 'rev:alpine'}]", ""},
		"text that is no configuration is refused": {"- a", "cannot unmarshal"},
		"a declared expression is a scheme":        {"schemes: [{repository: a, scheme: 'regexp:(?P<app>.+)'}]", ""},
		"a negative window makes nothing last":     {"rollbackWindow: -1h", "720h"},
		"a reason of spaces is none":               {"off: [{rule: T04, reason: '  '}]", "without a reason"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := ReadConfig([]byte(c.text))
			if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("%v, want %q", err, c.wrong)
			}
		})
	}
}

// What is switched off is counted, and only where it was meant.
func TestOff(t *testing.T) {
	t.Parallel()
	c, err := ReadConfig([]byte("off:\n- {rule: T07, reason: defaults are fine, objects: ['Pod/shop/*']}\n- {rule: T12, reason: two lines, files: ['deploy/*']}\n"))
	if err != nil {
		t.Fatal(err)
	}
	pod := func(file, ns string) string {
		return fmt.Sprintf("kind: Pod\nmetadata: {name: a, namespace: %s}\nspec: {containers: [{name: a, image: 'reg.example/web:1.0.0'}]}\n", ns)
	}
	var all []Object
	for _, f := range []struct{ file, ns string }{{"deploy/a.yaml", "shop"}, {"b.yaml", "pay"}} {
		o, err := Parse(f.file, []byte(pod(f.file, f.ns)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o...)
	}
	r := Check(all, Site{}, c)
	var on, off []string
	for _, f := range r.Findings {
		on = append(on, f.Rule+" "+f.Object)
	}
	for _, f := range r.Off {
		off = append(off, f.Rule+" "+f.Object+" "+f.Off)
	}
	if diff := cmp.Diff([]string{"T04 Pod/pay/a", "T07 Pod/pay/a", "T04 Pod/shop/a"}, on); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"T07 Pod/shop/a defaults are fine"}, off); diff != "" {
		t.Error(diff)
	}
	if r.Headline != "3 info in 2 objects; 1 switched off." {
		t.Errorf("headline %q", r.Headline)
	}
	if OffOf("T04; T99: x; T08:")["T04"] != "" || len(OffOf("T04: y; T08: z")) != 2 {
		t.Error("an annotation without a reason switches nothing off")
	}
}

func TestParseProblems(t *testing.T) {
	t.Parallel()
	if _, err := Parse("chart.yaml", []byte("kind: Pod\nimage: {{ .Values.image }}\nx: [")); err == nil || !strings.Contains(err.Error(), "chart.yaml") {
		t.Errorf("a template: %v", err)
	}
	objects, err := Parse("mixed.yaml", []byte("kind: Service\n---\n---\nkind: ConfigMap\n---\nkind: Deployment\n---\nnull\n---\njust text\n"))
	if err != nil || len(objects) != 0 {
		t.Errorf("documents without images: %v, %v", objects, err)
	}
	shared := "a: &c {name: x, image: 'reg.example/a:1'}\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [*c]}\n"
	if objects, err = Parse("alias.yaml", []byte(shared)); err != nil || len(objects) != 1 || objects[0].Uses[0].Image != "reg.example/a:1" {
		t.Errorf("an alias: %+v, %v", objects, err)
	}
	if objects, err = Parse("x.json", []byte(`{"kind":"Pod","metadata":{"name":"j"},"spec":{"containers":[{"name":"a","image":"a"}]}}`)); err != nil || len(objects) != 1 {
		t.Errorf("JSON: %+v, %v", objects, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("kind: Pod\nspec: {containers: [{image: a}]}")
	f.Add("kind: List\nitems: [{kind: PodDisruptionBudget}]")
	f.Add("a: &a [*a]")
	f.Fuzz(func(_ *testing.T, text string) {
		objects, _ := Parse("f.yaml", []byte(text))
		Check(objects, Site{Offline: true, Bundle: map[string]string{}}, Config{})
	})
}

// The fix belongs where the object is written, the outermost writer first.
func TestOwnerOf(t *testing.T) {
	t.Parallel()
	helm := map[string]string{"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"}
	for want, c := range map[string]struct{ labels, annotations map[string]string }{
		"":                            {nil, nil},
		"Helm release shop/web":       {map[string]string{"app.kubernetes.io/managed-by": "Helm"}, helm},
		"Flux HelmRelease apps/web":   {map[string]string{"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "apps"}, helm},
		"Flux Kustomization ns/infra": {map[string]string{"kustomize.toolkit.fluxcd.io/name": "infra"}, nil},
		"Argo CD application web":     {nil, map[string]string{"argocd.argoproj.io/tracking-id": "web:apps/Deployment:ns/web"}},
		"OLM ClusterServiceVersion operators/x.v1": {map[string]string{"olm.owner": "x.v1", "olm.owner.kind": "ClusterServiceVersion", "olm.owner.namespace": "operators"}, nil},
		"my-operator": {map[string]string{"app.kubernetes.io/managed-by": "my-operator"}, nil},
	} {
		if got := OwnerOf("ns", c.labels, c.annotations); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	o := Object{Kind: "Deployment", Namespace: "shop", Name: "web", Owner: "Helm release shop/web", Uses: []Use{{ImageUse: model.ImageUse{Image: "reg.example/web:1.0", Policy: model.PullAlways}}}}
	for _, f := range Check([]Object{o}, Site{Offline: true}, Config{}).Findings {
		if f.Owner != o.Owner {
			t.Errorf("a finding does not say who writes the object: %+v", f)
		}
	}
}
