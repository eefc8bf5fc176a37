package docs

import (
	"fmt"
	"maps"
	"sort"
	"strings"
	"testing"

	"github.com/refit-dev/refit/test/jsonfields"
)

// answers are the commands that print each kind of JSON.
var answers = map[string]string{
	"BootImage": "refit bootimage image", "BootImageCheck": "refit bootimage check", "BootImageHistory": "refit bootimage list", "BootImageProposals": "refit bootimage diff",
	"BootImageUploads": "refit bootimage uploads", "BootImages": "refit bootimage status", "Bundle": "refit bundle inspect",
	"BundleDelta": "refit bundle inspect", "BundleDiff": "refit bundle diff", "BundleImages": "refit bundle images", "BundleList": "refit bundle list", "BundleRemoval": "refit bundle remove", "ClusterBundles": "refit bundle list", "Detection": "refit-agent detect", "Drain": "refit explain node/NAME", "Drill": "refit drill", "RestoreDrill": "refit drill --restore",
	"Gate": "refit gate", "ImageReport": "refit tags check", "Inventory": "refit inventory", "Lint": "refit tags lint", "OSBuilt": "refit image build", "OSFiles": "refit image files", "OSHistory": "refit image history", "OSLint": "refit image lint",
	"NodeStatus": "refit-agent status", "Notification": "refit-controller -notifications", "PlanView": "refit plan", "Receipt": "refit receipt", "Receipts": "refit receipts", "RestartForecast": "refit tags check --event", "Simulation": "refit-lab simulate --result", "Status": "refit status", "Support": "refit support",
	"TagCompare": "refit tags compare", "TagPlan": "refit tags plan", "TagRetention": "refit tags retain", "TagSort": "refit tags sort",
	"TagStatus": "refit tags status", "Version": "refit version",
}

// TestJSONPage: docs/reference/json.md is made from the types that commands print.
func TestJSONPage(t *testing.T) {
	t.Parallel()
	src, err := jsonfields.Parse(root, "internal", "api")
	if err != nil {
		t.Fatal(err)
	}
	missing := maps.Clone(answers)
	var b strings.Builder
	b.WriteString("# JSON of the commands\n\nMade from the source by `go test ./test/docs -update`. `-o json` prints these objects, `-o yaml` the same as YAML. Within a version\nfields are added, never renamed or removed. Sizes are bytes, times are RFC 3339, durations are seconds.\n")
	sort.Slice(src.Views, func(i, j int) bool { return src.Views[i].Kind < src.Views[j].Kind })
	for _, v := range src.Views {
		command, ok := answers[v.Kind]
		if !ok {
			t.Errorf("kind %s (%s) has no command in the list of this test", v.Kind, v.Version)
		}
		delete(missing, v.Kind)
		fmt.Fprintf(&b, "\n## %s\n\n`%s`, `apiVersion: %s`.\n\n| field | type | description |\n| --- | --- | --- |\n", v.Kind, command, v.Version)
		for _, f := range src.Fields(v) {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Path, f.Type, cell(f.Doc))
		}
	}
	for kind := range missing {
		t.Errorf("no command prints kind %s any more", kind)
	}
	comparePage(t, "docs/reference/json.md", b.String())
}
