package tagscmd

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
)

// Manifests must name the new tag of a new version and of a fixed definition before the image is
// published. A rebuild needs no change of them.
func TestPlanChecksManifests(t *testing.T) {
	t.Parallel()
	pod := func(images ...string) string {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec:\n  containers:\n"
		for i, image := range images {
			text += fmt.Sprintf("  - name: c%d\n    image: %s\n", i, image)
		}
		return text
	}
	const repo = "registry.example/app"
	fix := event(`"d1"`, `"d2"`, `"build": "5.2"`, `"rev": 2, "build": "1.1"`)
	newer := event(`"version": "2.6.2"`, `"version": "2.7.0"`, `"app": "2.6.2"`, `"app": "2.7.0"`, `"5.2"`, `"1.1"`)
	for name, c := range map[string]struct {
		event, manifest string
		says            string // of the refusal, "" for none
	}{
		"a fix that is followed":           {fix, pod(repo + ":2.6.2-rev2"), ""},
		"a fix under its long tag":         {fix, pod(repo + ":2.6.2-rev2-b1.1"), ""},
		"a fix by digest":                  {fix, pod(repo + ":2.6.2-rev2@" + sumC), ""},
		"the short tag moves with a fix":   {fix, pod(repo + ":2.6.2"), ""},
		"a fix that is not followed":       {fix, pod(repo+":2.6.2-rev2", repo+":2.6.2-rev1"), "pod.yaml:9: registry.example/app:2.6.2-rev1"},
		"the old digest under the new tag": {fix, pod(repo + ":2.6.2-rev2@" + sumA), "1 of 1 references"},
		"an older line stays where it is":  {fix, pod(repo + ":2.6"), "registry.example/app:2.6"},
		"a new version that is followed":   {newer, pod(repo + ":2.7.0-rev1"), ""},
		"a new version that is not":        {newer, pod(repo + ":2.6.2-rev1"), "the new tag 2.7.0-rev1"},
		"no manifest has the image":        {newer, pod("registry.example/other:1"), "no manifest names an image of registry.example/app"},
		"a rebuild":                        {event(), pod("registry.example/app:2.6.2-rev1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "pod.yaml"), []byte(c.manifest), 0o600); err != nil {
				t.Fatal(err)
			}
			r := refit(t, "", "tags", "plan", "--published", file(t, published), "--event", file(t, c.event), "--manifests", dir, "-o", "json")
			var v planView
			if err := json.Unmarshal([]byte(r.out), &v); err != nil {
				t.Fatalf("%v: %s %s", err, r.out, r.err)
			}
			if c.says == "" {
				if r.code != console.ExitOK || len(v.Steps) == 0 {
					t.Fatalf("exit %d: %+v", r.code, v.Refusals)
				}
				return
			}
			if r.code != console.ExitBlocked || len(v.Steps) != 0 || len(v.Refusals) != 1 || v.Refusals[0].Reason != "ManifestOutdated" || !strings.Contains(v.Refusals[0].Message, c.says) {
				t.Fatalf("exit %d: %+v", r.code, v.Refusals)
			}
		})
	}
	if r := refit(t, "", "tags", "plan", "--published", file(t, published), "--event", file(t, fix), "--manifests", "none"); r.code != console.ExitUsage {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
}
