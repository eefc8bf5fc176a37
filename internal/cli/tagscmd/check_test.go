package tagscmd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/imagetag/audit"
	"github.com/refit-dev/refit/internal/render"
)

func d(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

// cluster is a dump: web runs 1.0 by IfNotPresent on n1, agent runs latest by
// Always on n1 and n2; n2 has another image behind 1.0.
func clusterDump() string {
	node := func(name string, images string) string {
		return fmt.Sprintf(`{"kind":"Node","metadata":{"name":%q},"status":{"nodeInfo":{"kubeletVersion":"v1.36.3","containerRuntimeVersion":"containerd://2.2.9","architecture":"amd64"},
 "conditions":[{"type":"Ready","status":"True"}],"images":[%s]}}`, name, images)
	}
	pod := func(ns, name, owner, node, image, policy, runs string) string {
		return fmt.Sprintf(`{"kind":"Pod","metadata":{"namespace":%q,"name":%q,"labels":{"pod-template-hash":"x"},"ownerReferences":[{"kind":%q,"name":"%s","controller":true}]},
 "spec":{"nodeName":%q,"containers":[{"name":"main","image":%q,"imagePullPolicy":%q}]},
 "status":{"containerStatuses":[{"name":"main","image":%q,"imageID":%q}]}}`, ns, name, strings.Split(owner, "/")[0], strings.Split(owner, "/")[1], node, image, policy, image, runs)
	}
	web, agent := "reg.example/shop/web", "reg.example/net/agent"
	return `{"kind":"List","items":[` + strings.Join([]string{
		node("n1", fmt.Sprintf(`{"names":["%s@%s","%s:1.0"]},{"names":["%s@%s","%s:latest"]}`, web, d("a"), web, agent, d("e"), agent)),
		node("n2", fmt.Sprintf(`{"names":["%s@%s","%s:1.0"]},{"names":["%s@%s","%s:latest"]}`, web, d("b"), web, agent, d("e"), agent)),
		pod("shop", "web-x-1", "ReplicaSet/web-x", "n1", web+":1.0", "IfNotPresent", web+"@"+d("a")),
		pod("kube-system", "agent-1", "DaemonSet/agent", "n1", agent+":latest", "Always", agent+"@"+d("e")),
		pod("kube-system", "agent-2", "DaemonSet/agent", "n2", agent+":latest", "Always", agent+"@"+d("e")),
	}, ",") + "]}"
}

const answered = `{"repository":"reg.example/shop/web","scheme":"rev","tags":{"1.0":"%s"}}
{"repository":"reg.example/net/agent","tags":{"latest":"%s"}}
`

func TestCheckReports(t *testing.T) {
	t.Parallel()
	dump := write(t, "dump.json", clusterDump())
	pub := write(t, "p.json", fmt.Sprintf(answered, d("a"), d("f")))
	r := refit(t, "", "tags", "check", "--dump", dump, "--published", pub, "-o", "json")
	var v audit.Report
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("%v\n%s%s", err, r.out, r.err)
	}
	if r.code != 3 || !v.Act || v.Verdict != "2 images on 2 nodes: 1 changing at the next restart; 1 current." {
		t.Errorf("exit code %d: %s", r.code, v.Verdict)
	}
	if l := v.Lines[0]; l.Where != "DaemonSet kube-system/agent" || strings.Join(l.States, " ") != "latent different" {
		t.Errorf("%+v", l)
	}
	if r := refit(t, "", "tags", "check", "--dump", dump, "--published", pub, "-n", "shop"); r.code != 0 || !strings.HasPrefix(r.out, "1 image on 2 nodes: all current.") {
		t.Errorf("one namespace: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if r := refit(t, "", "tags", "check", "--dump", dump, "--offline"); r.code != 3 || !strings.Contains(r.out, "unrestartable: DaemonSet kube-system/agent main: a crash would not start it: policy Always") {
		t.Errorf("a site without a registry: exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

func TestCheckForecasts(t *testing.T) {
	t.Parallel()
	dump := write(t, "dump.json", clusterDump())
	ask := func(more ...string) (render.Forecast, result) {
		r := refit(t, "", append([]string{"tags", "check", "--dump", dump, "-o", "json"}, more...)...)
		var v render.Forecast
		if err := json.Unmarshal([]byte(r.out), &v); err != nil {
			t.Fatalf("%v: %v\n%s%s", more, err, r.out, r.err)
		}
		return v, r
	}
	v, r := ask("--event", "reboot", "--node", "n1", "--registry", "down")
	if r.code != 3 || v.Verdict != "reboot of node n1, registry down: 1 the same, 1 cannot start." || len(v.Answers) != 2 {
		t.Errorf("exit code %d: %s", r.code, v.Verdict)
	}
	v, _ = ask("--event", "reschedule", "-n", "shop")
	if a := v.Answers[0]; a.Outcome != "changes" || a.To != d("b") || a.From != d("a") || a.Pod != "shop/web-x-1" {
		t.Errorf("%+v", a)
	}
	if v, r = ask("--event", "crash", "-n", "shop"); r.code != 0 || v.Answers[0].Outcome != "same" {
		t.Errorf("exit code %d: %+v", r.code, v)
	}
	if v, _ = ask("--event", "all", "-n", "shop"); len(v.Answers) != 6 {
		t.Errorf("%d answers for all events", len(v.Answers))
	}
	manifest := write(t, "new.yaml", "kind: Deployment\nmetadata: {name: new, namespace: shop}\nspec: {template: {spec: {containers: [{name: a, image: 'reg.example/shop/new:1'}, {name: b, image: 'reg.example/shop/web:1.0'}]}}}\n")
	v, r = ask("-f", manifest, "--registry", "down")
	if r.code != 3 || v.Counts["fails"] != 1 || v.Counts["starts"] != 1 {
		t.Errorf("manifests: exit code %d: %+v", r.code, v)
	}
}

func TestCheckUsage(t *testing.T) {
	t.Parallel()
	dump := write(t, "dump.json", clusterDump())
	for sentence, argv := range map[string][]string{
		"an unknown event":               {"--event", "flood"},
		"a registry neither up nor down": {"--registry", "sideways"},
		"a node that is not there":       {"--dump", dump, "--node", "n9"},
		"a dump that is not there":       {"--dump", "/nonexistent"},
		"a dump without nodes":           {"--dump", write(t, "d.json", `{"kind":"List","items":[]}`)},
		"answers that are no JSON":       {"--dump", dump, "--published", write(t, "p.json", "x")},
		"answers about no repository":    {"--dump", dump, "--published", write(t, "p.json", "{}")},
	} {
		if r := refit(t, "", append([]string{"tags", "check"}, argv...)...); r.code != 2 || r.err == "" {
			t.Errorf("%s: exit code %d, %q", sentence, r.code, r.err)
		}
	}
}
