//go:build linux

package tagscmd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/imagetag/audit"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// A real registry says what is behind a tag: that it moved, that it is gone; without an
// answer it stays unknown.
func TestCheckAsksRegistries(t *testing.T) {
	r := registrytest.Start(t)
	old := r.Push("shop/web", registrytest.Image{Version: "1"}, "1.0-rev1-b1")
	r.Push("shop/web", registrytest.Image{Version: "1", Layers: []string{"rebuilt"}}, "1.0", "1.0-rev1-b2")
	pods := strings.NewReplacer("reg.example/shop/web:1.0", r.Ref("shop/web:1.0"), "reg.example/shop/web@"+d("a"), r.Ref("shop/web@"+old), "reg.example/net/agent:latest", r.Ref("shop/gone:1"),
		"reg.example/shop/web", r.Ref("shop/web")).Replace(clusterDump())
	dump := write(t, "dump.json", pods)
	ask := func() audit.Report {
		res := refit(t, "", "tags", "check", "--dump", dump, "--ask", "-o", "json")
		var v audit.Report
		if err := json.Unmarshal([]byte(res.out), &v); err != nil {
			t.Fatalf("%v\n%s%s", err, res.out, res.err)
		}
		return v
	}
	state := func(v audit.Report, where string) string {
		for _, l := range v.Lines {
			if l.Where == where {
				return strings.Join(l.States, " ")
			}
		}
		return "no line"
	}
	v := ask()
	if got := state(v, "Deployment shop/web"); got != "different" {
		t.Errorf("a tag that moved: %s", got)
	}
	if got := state(v, "DaemonSet kube-system/agent"); got != "unrestartable" {
		t.Errorf("a tag that is gone, with policy Always: %s", got)
	}
	r.Stop()
	if got := state(ask(), "Deployment shop/web"); got != "unasked" {
		t.Errorf("without an answer: %s", got)
	}
}
