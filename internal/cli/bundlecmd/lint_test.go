package bundlecmd

import (
	"os"
	"strings"
	"testing"
)

func manifest(t *testing.T, image, policy string) {
	t.Helper()
	text := "kind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: web, image: '" + image + "', imagePullPolicy: " + policy + "}]}}}\n"
	if err := os.WriteFile("web.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// If manifests need something that the bundle does not have, create refuses before it
// copies a byte; for unwise settings it only warns.
func TestCreateChecksManifests(t *testing.T) {
	site(t)
	create := func(more ...string) result {
		return refit(t, append([]string{"bundle", "create", "--output", "b", "--key", "keys/refit.key", "--manifests", "web.yaml", "oci:layout"}, more...)...)
	}
	manifest(t, "registry.example/other:1", "IfNotPresent")
	if r := create(); r.code != 3 || !strings.Contains(r.err, "web.yaml:3: error T06") {
		t.Errorf("an image that is not in the bundle: exit code %d\n%s", r.code, r.err)
	}
	manifest(t, "registry.example/app:1", "Always")
	if r := create(); r.code != 3 || !strings.Contains(r.err, "error T03") {
		t.Errorf("policy Always: exit code %d\n%s", r.code, r.err)
	}
	for _, f := range []string{"b", "b.partial"} {
		if _, err := os.Stat(f); err == nil {
			t.Errorf("%s was written for a bundle that is refused", f)
		}
	}
	manifest(t, "registry.example/app:1", "IfNotPresent") // tag 1 moves: a warning
	if r := create("--strict"); r.code != 3 || !strings.Contains(r.err, "warning T04") {
		t.Errorf("--strict: exit code %d\n%s", r.code, r.err)
	}
	if r := create(); r.code != 0 || !strings.Contains(r.err, "warning T04") {
		t.Errorf("a warning: exit code %d\n%s", r.code, r.err)
	}
}
