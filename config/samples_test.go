package config_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// notWritten are kinds that only refit writes: they have no sample.
var notWritten = map[string]bool{"Content": true, "InPlacePlan": true, "NodeUpdate": true, "OSBuild": true}

// damages are one wrong value for each sample: old text, new text, and what the
// refusal says.
var damages = map[string][3]string{
	"bootimagepolicy":          {"mode: Roll ", "mode: Observe ", "windows are for mode Roll"},
	"bootimagestream":          {"inline: |", "url: {url: 'https://a.example'}\n  inline: |", "exactly one of inline, configMap, url, bundle and artifact"},
	"bootimagestream-url":      {"url: https://", "url: http://", "must begin with https://"},
	"bundle":                   {"digest: sha256:baf1", "digest: sha256:BAF1", "as `refit bundle inspect` prints it"},
	"clusterupdate":            {"reason: this site has no NTP server", "reason: ' '", "say why the risk is taken"},
	"imagetrack":               {"tier: Intermediate", "tag: '2.6'", "a single tag has one version"},
	"machinesource":            {"declared:\n    os: \"9.6\"\n    release: 1.36.3", "declared: {}", "declare the release, the OS version, or both"},
	"nodeconfig":               {"path: /etc/motd", "path: /etc/../motd", "must be an absolute, clean path"},
	"nodeconfig-fields":        {"path: firmware/bios", "path: file/bios", "none that refit's own updaters know"},
	"osimage":                  {"track: true ", "track: false ", "leave track out, or set it to true"},
	"pinnedimageset":           {"digest: sha256:5b0b", "digest: latest # ", "a tag alone can move"},
	"trustpolicy":              {"threshold: 2", "threshold: 4", "lower it or add keys"},
	"trustpolicy-images":       {"accept: Unsigned ", "accept: Anything ", "Unsupported value"},
	"updatepool":               {"maxUnavailable: 10%", "maxUnavailable: 0%", "use paused to stop"},
	"updatepool-health-checks": {"kind: Deployment", "kind: Secret", "a health check reads no Secret"},
	"updater":                  {"url: https://", "url: http://", "must begin with https://"},
}

// Every kind that people write has a sample, which an administrator of refit can
// apply as it stands; a field that the API does not know, or a wrong value, is refused.
func testSamples(t *testing.T, cfg *rest.Config, admin client.Client) {
	grant := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "samples-admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "refit-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "samples@example.com"}},
	}
	mustCreate(t, admin, grant)
	waitForPolicies(t, admin)
	c := client.WithFieldValidation(newClient(t, apitest.As(cfg, "samples@example.com")), metav1.FieldValidationStrict)
	for name, kind := range sampleKinds(t) {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("samples", name+".yaml"))
			if err != nil {
				t.Fatalf("kind %s has no sample: %v", kind, err)
			}
			sample := decodeSample(t, text)
			if sample.GetKind() != kind {
				t.Fatalf("kind is %s, want %s", sample.GetKind(), kind)
			}
			stored := createSample(t, c, sample)
			if lost := missingFields("", sample.Object, stored.Object); len(lost) > 0 {
				t.Errorf("the API server dropped or changed %s", strings.Join(lost, ", "))
			}
			unknown := decodeSample(t, text)
			unknown.SetName(name + "-unknown")
			if err := unstructured.SetNestedField(unknown.Object, "x", "spec", "noSuchField"); err != nil {
				t.Fatal(err)
			}
			refused(t, c.Create(context.Background(), unknown), "noSuchField")
			d, ok := damages[name]
			if !ok || !bytes.Contains(text, []byte(d[0])) {
				t.Fatalf("no damage for the sample, or it does not have %q", d[0])
			}
			damaged := decodeSample(t, bytes.Replace(text, []byte(d[0]), []byte(d[1]), 1))
			damaged.SetName(name + "-damaged")
			refused(t, c.Create(context.Background(), damaged), d[2])
		})
	}
}

// createSample creates the object; the grant of its role counts a moment later.
func createSample(t *testing.T, c client.Client, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	var err error
	for range 50 {
		stored := o.DeepCopy()
		if err = c.Create(context.Background(), stored); err == nil {
			return stored
		}
		if !strings.Contains(err.Error(), "forbidden: User") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal(err)
	return nil
}

// sampleKinds returns the kinds of samples by their names: KIND or KIND-WHAT. Each kind that
// people write has one.
func sampleKinds(t *testing.T) map[string]string {
	t.Helper()
	crds, err := config.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, crd := range crds {
		kind, _, err := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		if err != nil {
			t.Fatal(err)
		}
		if !notWritten[kind] {
			kinds[strings.ToLower(kind)] = kind
		}
	}
	out := maps.Clone(kinds)
	files, err := filepath.Glob("samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		word, _, _ := strings.Cut(name, "-")
		if kinds[word] == "" {
			t.Errorf("%s is a sample of no kind", file)
			continue
		}
		out[name] = kinds[word]
	}
	return out
}

func decodeSample(t *testing.T, text []byte) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(text, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// missingFields returns the paths that want has and got does not have with the same value.
func missingFields(path string, want, got any) []string {
	var out []string
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for name, value := range w {
			out = append(out, missingFields(path+"."+name, value, g[name])...)
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return []string{path}
		}
		for i := range w {
			out = append(out, missingFields(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) {
			out = append(out, path)
		}
	}
	return out
}
