package restartforecast

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

var update = flag.Bool("update", false, "write testdata")

func d(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

const (
	repo = "reg.example/shop/web"
	name = repo + ":1.0"
)

// testSite is a pod on n1, with n2 as another node; a case changes what differs.
type testSite struct {
	site Site
	pod  model.ImagePod
}

func newSite() *testSite {
	w := &testSite{}
	w.site.AlwaysPull = AdmissionOff
	for _, n := range []string{"n1", "n2"} {
		w.site.Nodes = append(w.site.Nodes, model.ImageNode{Name: n, Runtime: "containerd", Arch: "amd64", Kubelet: "v1.36.3", Takes: true, Complete: true,
			Labels: map[string]string{"kubernetes.io/hostname": n}})
	}
	w.cache(0, name, repo+"@"+d("a"))
	w.cache(1, name, repo+"@"+d("a"))
	w.site.Published = map[string]model.Published{name: {Digest: d("a")}}
	w.site.GoneDigests = map[string]bool{}
	w.site.Same = &model.SameImages{}
	w.pod = model.ImagePod{Namespace: "shop", Name: "web-1", Node: "n1", OwnerKind: model.OwnerDeployment, OwnerName: "web",
		Uses: []model.ImageUse{{Container: "web", Kind: model.UseContainer, Image: name, Policy: model.PullIfNotPresent, Runs: repo + "@" + d("a")}}}
	return w
}

func (w *testSite) cache(node int, names ...string) {
	n := &w.site.Nodes[node]
	n.Images = append(n.Images, model.CachedImage{Names: names})
}

func (w *testSite) use() *model.ImageUse { return &w.pod.Uses[0] }

func (w *testSite) empty(node int) { w.site.Nodes[node].Images = nil }

func (w *testSite) movedUpstream() { w.site.Published[name] = model.Published{Digest: d("b")} }

func (w *testSite) movedLocally() {
	w.empty(0)
	w.cache(0, repo+"@"+d("a"))
	w.cache(0, name, repo+"@"+d("b"))
}

func (w *testSite) ask(event, registry string) model.RestartAnswer {
	w.site.Pods = append(w.site.Pods, w.pod)
	return New(w.site).Forecast(&w.pod, w.use(), event, registry)
}

// What a start would run.
func TestAsk(t *testing.T) {
	t.Parallel()
	pinned := func(w *testSite) {
		w.use().Image = name + "@" + d("a")
	}
	always := func(w *testSite) { w.use().Policy = model.PullAlways }
	never := func(w *testSite) { w.use().Policy = model.PullNever }
	type step = func(*testSite)
	for sentence, c := range map[string]struct {
		make            []step
		event, registry string
		want            string // outcome, the digest's letter, reason
	}{
		// IfNotPresent
		"a tag that is on the node starts what runs, with the registry up":   {nil, Crash, Up, "same a Cached"},
		"a tag that is on the node starts what runs, with the registry down": {nil, Crash, Down, "same a Cached"},
		"a tag that moved in the registry is not seen by a crash":            {[]step{(*testSite).movedUpstream}, Crash, Up, "same a Cached"},
		"nor by a reboot": {[]step{(*testSite).movedUpstream}, Reboot, Up, "same a Cached"},
		"a tag that another pod's pull moved on the node changes a crash":              {[]step{(*testSite).movedLocally}, Crash, Down, "changes b TagMoved"},
		"a tag that is not on the node is pulled":                                      {[]step{func(w *testSite) { w.empty(0) }}, Crash, Up, "same a Pulled"},
		"a tag that is not on the node and moved upstream changes":                     {[]step{func(w *testSite) { w.empty(0) }, (*testSite).movedUpstream}, Reboot, Up, "changes b TagMoved"},
		"a tag that is not on the node fails with the registry down":                   {[]step{func(w *testSite) { w.empty(0) }}, Reboot, Down, "fails - NotCached"},
		"a tag that the registry does not have any more fails where it is not cached":  {[]step{func(w *testSite) { w.empty(0); w.site.Published[name] = model.Published{Gone: true} }}, Crash, Up, "fails - Gone"},
		"a tag whose upstream digest was not read is unknown where it is pulled":       {[]step{func(w *testSite) { w.empty(0); delete(w.site.Published, name) }}, Crash, Up, "unknown - NotKnown"},
		"a cut off list of images says nothing about a name that is not in it":         {[]step{func(w *testSite) { w.empty(0); w.site.Nodes[0].Complete = false }}, Crash, Down, "unknown - NotKnown"},
		"nor with the registry up: the copy may be older than what it answers":         {[]step{func(w *testSite) { w.empty(0); w.site.Nodes[0].Complete = false }}, Crash, Up, "unknown - NotKnown"},
		"a name that is in a cut off list is there":                                    {[]step{func(w *testSite) { w.site.Nodes[0].Complete = false }}, Crash, Down, "same a Cached"},
		"a node that is not known says nothing":                                        {[]step{func(w *testSite) { w.pod.Node = "n9" }}, Crash, Up, "unknown - NotKnown"},
		"an imageID of a configuration and a digest of a manifest prove no difference": {[]step{func(w *testSite) { w.use().Runs = d("c") }}, Crash, Up, "unknown a NotKnown"},
		"unless they are known to be one image":                                        {[]step{func(w *testSite) { w.use().Runs = d("c"); w.site.Same.Join(d("a"), d("c")) }}, Crash, Up, "same c Cached"},
		"two configurations that differ are two images":                                {[]step{func(w *testSite) { w.use().Runs = d("c"); w.site.Nodes[0].Images[0].ID = d("e") }}, Crash, Up, "changes a TagMoved"},
		"an image that lost its names on the node is not found by a tag":               {[]step{func(w *testSite) { w.empty(0); w.cache(0) }}, Crash, Down, "fails - NotCached"},
		"a reference without a tag means latest":                                       {[]step{func(w *testSite) { w.use().Image = repo; w.cache(0, repo+":latest", repo+"@"+d("a")) }}, Crash, Down, "same a Cached"},
		"a mirror's older answer is what a pull gives": {[]step{func(w *testSite) {
			w.empty(0)
			w.site.Published[name] = model.Published{Digest: d("a"), Mirror: d("f")}
		}}, Crash, Up, "changes f TagMoved"},
		"on a runtime that reports manifests of platforms an index proves no change": {[]step{func(w *testSite) { w.site.Nodes[0].Runtime = "cri-o"; always(w) }, (*testSite).movedUpstream}, Crash, Up, "unknown b NotKnown"},
		"unless all digests of the published image are known": {[]step{func(w *testSite) {
			w.site.Nodes[0].Runtime = "cri-o"
			always(w)
			w.site.Published[name] = model.Published{Digest: d("b"), Same: []string{d("e")}}
		}}, Crash, Up, "changes b TagMoved"},
		"and a manifest of the published index is the same image": {[]step{func(w *testSite) {
			w.site.Nodes[0].Runtime = "cri-o"
			always(w)
			w.site.Published[name] = model.Published{Digest: d("b"), Same: []string{d("a")}}
		}}, Crash, Up, "same b Pulled"},
		"the name docker.io/library/nginx is the name nginx": {[]step{func(w *testSite) {
			w.use().Image = "nginx:1.0"
			w.cache(0, "docker.io/library/nginx:1.0", "docker.io/library/nginx@"+d("a"))
		}}, Crash, Down, "same a Cached"},
		"a reference that cannot be read fails":                               {[]step{func(w *testSite) { w.use().Image = "reg.example/Shop:1" }}, Crash, Up, "fails - IllegalName"},
		"a pod whose container waits has nothing to compare with, and starts": {[]step{func(w *testSite) { w.use().Runs = "" }}, Crash, Down, "starts a Cached"},
		"two containers want one tag at a reboot, and one pulls it: which is first": {[]step{(*testSite).movedUpstream, func(w *testSite) {
			p := w.pod
			p.Name = "other"
			p.Uses = slices.Clone(p.Uses)
			p.Uses[0].Policy = model.PullAlways
			w.site.Pods = append(w.site.Pods, p)
		}}, Reboot, Up, "unknown - Race"},
		"that is no race if the tag has not moved": {[]step{func(w *testSite) {
			p := w.pod
			p.Uses = slices.Clone(p.Uses)
			p.Uses[0].Policy = model.PullAlways
			w.site.Pods = append(w.site.Pods, p)
		}}, Reboot, Up, "same a Cached"},
		"nor with the registry down": {[]step{(*testSite).movedUpstream, func(w *testSite) {
			p := w.pod
			p.Uses = slices.Clone(p.Uses)
			p.Uses[0].Policy = model.PullAlways
			w.site.Pods = append(w.site.Pods, p)
		}}, Reboot, Down, "same a Cached"},
		"an image that is not used on a full node may be collected before": {[]step{func(w *testSite) { w.site.Nodes[1].Pressure = true }}, Reschedule, Down, "unknown - Collected"},
		"not if it is pinned":                       {[]step{func(w *testSite) { w.site.Nodes[1].Pressure = true; w.site.Nodes[1].Images[0].Pinned = true }}, Reschedule, Down, "same a Cached"},
		"what the pod itself runs is not collected": {[]step{func(w *testSite) { w.site.Nodes[0].Pressure = true }}, Crash, Down, "same a Cached"},
		// Always
		"policy Always asks the registry, which has not moved the tag":               {[]step{always}, Crash, Up, "same a Pulled"},
		"policy Always runs the moved tag at the next crash":                         {[]step{always, (*testSite).movedUpstream}, Crash, Up, "changes b TagMoved"},
		"policy Always fails with the registry down, though the image is there":      {[]step{always}, Crash, Down, "fails - PullAlways"},
		"a static pod with Always does not come back from a reboot without registry": {[]step{always, func(w *testSite) { w.pod.Static = true }}, Reboot, Down, "fails - PullAlways"},
		"a policy left out for latest is Always":                                     {[]step{func(w *testSite) { w.use().Policy = ""; w.use().Image = repo + ":latest" }}, Crash, Down, "fails - PullAlways"},
		"a policy left out for no tag is Always":                                     {[]step{func(w *testSite) { w.use().Policy = ""; w.use().Image = repo }}, Crash, Down, "fails - PullAlways"},
		"a policy left out for latest with a digest is Always too":                   {[]step{func(w *testSite) { w.use().Policy = ""; w.use().Image = repo + ":latest@" + d("a") }}, Crash, Down, "fails - PullAlways"},
		"a policy left out for another tag is IfNotPresent":                          {[]step{func(w *testSite) { w.use().Policy = "" }}, Crash, Down, "same a Cached"},
		"a policy left out for a digest is IfNotPresent":                             {[]step{func(w *testSite) { w.use().Policy = ""; w.use().Image = repo + "@" + d("a") }}, Crash, Down, "same a Digest"},
		"AlwaysPullImages turns a new pod's policy into Always":                      {[]step{func(w *testSite) { w.site.AlwaysPull = AdmissionOn }}, Recreate, Down, "fails - PullAlways"},
		"AlwaysPullImages does not touch a pod that is there when it crashes":        {[]step{func(w *testSite) { w.site.AlwaysPull = AdmissionOn }}, Crash, Down, "same a Cached"},
		"AlwaysPullImages hides what the file of a static pod says":                  {[]step{always, func(w *testSite) { w.site.AlwaysPull = AdmissionOn; w.pod.Static = true }}, Reboot, Down, "unknown - NotKnown"},
		// digest
		"a digest that is on the node starts with the registry down":                 {[]step{pinned}, Reboot, Down, "same a Digest"},
		"a digest with Always fails with the registry down":                          {[]step{pinned, always}, Reboot, Down, "fails - PullAlways"},
		"a digest with Always is the same with the registry up":                      {[]step{pinned, always, (*testSite).movedUpstream}, Reboot, Up, "same a Digest"},
		"a digest that is not on the node is pulled as the same bytes":               {[]step{pinned, func(w *testSite) { w.empty(0) }, (*testSite).movedUpstream}, Crash, Up, "same a Digest"},
		"a digest that is not on the node fails with the registry down":              {[]step{pinned, func(w *testSite) { w.empty(0) }}, Crash, Down, "fails - NotCached"},
		"content that is there only under its tag is not found by its digest":        {[]step{pinned, func(w *testSite) { w.empty(0); w.cache(0, name) }}, Crash, Down, "fails - NotCached"},
		"content that is there under another repository is not found by this digest": {[]step{pinned, func(w *testSite) { w.empty(0); w.cache(0, "other.example/web@"+d("a")) }}, Crash, Down, "fails - NotCached"},
		"a digest that the registry has let go cannot be pulled":                     {[]step{pinned, func(w *testSite) { w.empty(0); w.site.GoneDigests[repo+"@"+d("a")] = true }}, Crash, Up, "fails - Gone"},
		"a digest is the same even where the node's list is cut off, registry up":    {[]step{pinned, func(w *testSite) { w.empty(0); w.site.Nodes[0].Complete = false }}, Crash, Up, "same a Digest"},
		// Never
		"policy Never starts what is on the node":                    {[]step{never}, Crash, Down, "same a Cached"},
		"policy Never fails without the image, with the registry up": {[]step{never, func(w *testSite) { w.empty(0) }}, Crash, Up, "fails - NeverPulled"},
		"policy Never runs the tag as it means now on the node":      {[]step{never, (*testSite).movedLocally}, Crash, Up, "changes b TagMoved"},
		// credentials, 1.35
		"a record of others makes IfNotPresent ask the registry": {[]step{func(w *testSite) { w.site.Nodes[0].Images[0].Record = model.RecordOthers }}, Crash, Down, "fails - Credentials"},
		"and then gives what the registry answers":               {[]step{func(w *testSite) { w.site.Nodes[0].Images[0].Record = model.RecordOthers }, (*testSite).movedUpstream}, Crash, Up, "changes b TagMoved"},
		"a record of others makes Never fail":                    {[]step{never, func(w *testSite) { w.site.Nodes[0].Images[0].Record = model.RecordOthers }}, Crash, Up, "fails - Credentials"},
		"a kubelet of 1.34 ignores the record": {[]step{func(w *testSite) {
			w.site.Nodes[0].Images[0].Record = model.RecordOthers
			w.site.Nodes[0].Kubelet = "v1.34.9"
		}}, Crash, Down, "same a Cached"},
		"a kubelet with NeverVerify ignores the record": {[]step{func(w *testSite) {
			w.site.Nodes[0].Images[0].Record = model.RecordOthers
			w.site.Nodes[0].Verification = "NeverVerify"
		}}, Crash, Down, "same a Cached"},
		"an image on the allow list is free": {[]step{func(w *testSite) {
			w.site.Nodes[0].Images[0].Record = model.RecordOthers
			w.site.Nodes[0].Verification = "NeverVerifyAllowlistedImages"
			w.site.Nodes[0].Allowed = []string{"reg.example/shop/*"}
		}}, Crash, Down, "same a Cached"},
		"a preloaded image is free under the default policy": {[]step{func(w *testSite) { w.site.Nodes[0].Images[0].Record = model.RecordNone }}, Crash, Down, "same a Cached"},
		"a preloaded image is not under AlwaysVerify": {[]step{func(w *testSite) {
			w.site.Nodes[0].Images[0].Record = model.RecordNone
			w.site.Nodes[0].Verification = "AlwaysVerify"
		}}, Crash, Down, "fails - Credentials"},
		"an image pulled without credentials is free for all": {[]step{func(w *testSite) {
			w.site.Nodes[0].Images[0].Record = model.RecordAnyone
			w.site.Nodes[0].Verification = "AlwaysVerify"
		}}, Crash, Down, "same a Cached"},
		"one content under two repositories may be asked for again":      {[]step{func(w *testSite) { w.empty(0); w.cache(0, name, repo+"@"+d("a"), "other.example/web@"+d("a")) }}, Crash, Down, "unknown - Credentials"},
		"which does not matter while the registry answers the same":      {[]step{func(w *testSite) { w.empty(0); w.cache(0, name, repo+"@"+d("a"), "other.example/web@"+d("a")) }}, Crash, Up, "same a Cached"},
		"pods with other secrets only may have pulled it for themselves": {[]step{func(w *testSite) { w.site.Nodes[1].Images[0].Secrets = []string{"pay/key"} }}, Reschedule, Down, "unknown - Credentials"},
		"a pod with the same secret gets it": {[]step{func(w *testSite) {
			w.pod.Secrets = []string{"key"}
			w.site.Nodes[1].Images[0].Secrets = []string{"shop/key"}
		}}, Reschedule, Down, "same a Cached"},
		// where it starts
		"another node without the image fails with the registry down": {[]step{func(w *testSite) { w.empty(1) }}, Reschedule, Down, "fails - NotCached"},
		"another node without the image gets the moved tag":           {[]step{func(w *testSite) { w.empty(1) }, (*testSite).movedUpstream}, Reschedule, Up, "changes b TagMoved"},
		"another node that has an older copy differs from this one":   {[]step{func(w *testSite) { w.empty(1); w.cache(1, name, repo+"@"+d("e")) }}, Reschedule, Down, "changes e TagMoved"},
		"a new node has nothing":                                      {nil, NewNode, Down, "fails - NotCached"},
		"a new node gets the moved tag":                               {[]step{(*testSite).movedUpstream}, NewNode, Up, "changes b TagMoved"},
		"a new node and policy Never":                                 {[]step{never}, NewNode, Up, "fails - NeverPulled"},
		"one more replica: the worst node counts":                     {[]step{func(w *testSite) { w.empty(1) }}, ScaleUp, Down, "fails - NotCached"},
		"one more replica where all have it":                          {nil, ScaleUp, Down, "same a Cached"},
		"a cordoned node takes no replica":                            {[]step{func(w *testSite) { w.empty(1); w.site.Nodes[1].Takes = false }}, ScaleUp, Down, "same a Cached"},
		"a taint keeps a replica where the image is": {[]step{func(w *testSite) {
			w.empty(1)
			w.site.Nodes[1].Taints = []model.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}}
		}}, ScaleUp, Down, "same a Cached"},
		"a pod that bears the taint may go there": {[]step{func(w *testSite) {
			w.empty(1)
			w.site.Nodes[1].Taints = []model.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}}
			w.pod.Tolerates = []model.Toleration{{Key: "k", Any: true}}
		}}, ScaleUp, Down, "fails - NotCached"},
		"a node selector keeps a replica where the image is": {[]step{func(w *testSite) { w.empty(1); w.pod.NodeSelector = map[string]string{"kubernetes.io/hostname": "n1"} }}, ScaleUp, Down, "same a Cached"},
		"no other node takes it":                             {[]step{func(w *testSite) { w.site.Nodes[1].Takes = false }}, Reschedule, Up, "none - NoNode"},
		// what is not started
		"an ephemeral container is never started again":      {[]step{func(w *testSite) { w.use().Kind = model.UseEphemeral }}, Reboot, Up, "none - NotStarted"},
		"an init container is not run again by a crash":      {[]step{func(w *testSite) { w.use().Kind = model.UseInit }}, Crash, Up, "none - NotStarted"},
		"an init container is run again by a reboot":         {[]step{func(w *testSite) { w.use().Kind = model.UseInit }}, Reboot, Up, "same a Cached"},
		"a sidecar is restarted as any container":            {[]step{func(w *testSite) { w.use().Kind = model.UseSidecar }}, Crash, Up, "same a Cached"},
		"a pod that is not restarted is not by a reboot":     {[]step{func(w *testSite) { w.pod.NotRestarted = true }}, Reboot, Up, "none - NotStarted"},
		"a static pod does not move":                         {[]step{func(w *testSite) { w.pod.Static = true }}, Reschedule, Up, "none - NotStarted"},
		"a DaemonSet has no more replicas":                   {[]step{func(w *testSite) { w.pod.OwnerKind = model.OwnerDaemonSet }}, ScaleUp, Up, "none - NotStarted"},
		"a DaemonSet runs on a new node":                     {[]step{func(w *testSite) { w.pod.OwnerKind = model.OwnerDaemonSet }, (*testSite).movedUpstream}, NewNode, Up, "changes b TagMoved"},
		"a pod without owner is not made again":              {[]step{func(w *testSite) { w.pod.OwnerKind = "" }}, Recreate, Up, "none - NotStarted"},
		"a template without pods does not crash":             {[]step{func(w *testSite) { w.pod.Node = "" }}, Crash, Up, "none - NotStarted"},
		"a template without pods starts what its nodes have": {[]step{func(w *testSite) { w.pod.Node, w.use().Runs = "", "" }}, ScaleUp, Down, "starts a Cached"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			w := newSite()
			for _, f := range c.make {
				f(w)
			}
			a := w.ask(c.event, c.registry)
			if got := line(a); got != c.want {
				t.Errorf("%s, registry %s: %s, want %s\n%s", c.event, c.registry, got, c.want, a.Why)
			}
			if a.Why == "" || a.Reason == "" {
				t.Error("an answer without a reason")
			}
		})
	}
}

func line(a model.RestartAnswer) string {
	to := "-"
	if a.To != "" {
		to = a.To[len("sha256:") : len("sha256:")+1]
	}
	return a.Outcome + " " + to + " " + a.Reason
}

// Nodes that differ are named.
func TestNodesAreNamed(t *testing.T) {
	t.Parallel()
	w := newSite()
	w.empty(1)
	if a := w.ask(ScaleUp, Down); !slices.Equal(a.Nodes, []string{"n2"}) {
		t.Errorf("the nodes without the image: %v", a.Nodes)
	}
	if a := newSite().ask(ScaleUp, Down); a.Nodes != nil {
		t.Errorf("all nodes are alike, and %v are named", a.Nodes)
	}
}

// TestMatrix keeps the answer of every policy, cache, registry and event in one
// table that a person can read.
func TestMatrix(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("reference policy       on the node   registry  crash              reschedule         new-node\n")
	for _, ref := range []string{"tag", "digest"} {
		for _, policy := range []model.PullPolicy{model.PullIfNotPresent, model.PullAlways, model.PullNever} {
			for _, cache := range []string{"same", "moved", "absent", "not known"} {
				for _, registry := range []string{"same", "moved", "gone", "unasked", Down} {
					fmt.Fprintf(&b, "%-9s %-12s %-13s %-9s", ref, policy, cache, registry)
					for _, event := range []string{Crash, Reschedule, NewNode} {
						fmt.Fprintf(&b, " %-18s", line(cell(ref, policy, cache, registry, event)))
					}
					b.WriteString("\n")
				}
			}
		}
	}
	const path = "testdata/matrix.txt"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != b.String() {
		t.Errorf("%s differs (%v): look, then run with -update\n%s", path, err, b.String())
	}
}

func cell(ref string, policy model.PullPolicy, cache, registry, event string) model.RestartAnswer {
	w := newSite()
	w.use().Policy = policy
	if ref == "digest" {
		w.use().Image = repo + "@" + d("a")
	}
	for i := range w.site.Nodes {
		w.empty(i)
		switch cache {
		case "same":
			w.cache(i, name, repo+"@"+d("a"))
		case "moved":
			w.cache(i, name, repo+"@"+d("b"))
			w.cache(i, repo+"@"+d("a"))
		case "not known":
			w.site.Nodes[i].Complete = false
		}
	}
	up := Up
	switch registry {
	case "moved":
		w.movedUpstream()
	case "gone":
		w.site.Published[name] = model.Published{Gone: true}
		w.site.GoneDigests[repo+"@"+d("a")] = true
	case "unasked":
		delete(w.site.Published, name)
	case Down:
		up = Down
	}
	return w.ask(event, up)
}

// draw makes any testSite.
func draw(t *rapid.T) *testSite {
	w := newSite()
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	digest := func(label string) string { return d(pick(label, "a", "b", "c")) }
	w.use().Policy = model.PullPolicy(pick("policy", "", "Always", "IfNotPresent", "Never"))
	w.use().Image = pick("image", name, repo, repo+"@"+d("a"), name+"@"+d("a"), repo+":latest", repo+":latest@"+d("a"))
	w.use().Runs = pick("runs", "", repo+"@"+d("a"), repo+"@"+d("b"), d("c"))
	w.use().Kind = pick("kind", model.UseContainer, model.UseInit, model.UseSidecar, model.UseVolume)
	w.pod.Static = rapid.Bool().Draw(t, "static")
	w.pod.OwnerKind = pick("owner", "", model.OwnerDaemonSet, model.OwnerDeployment)
	w.site.AlwaysPull = Admission(pick("admission", "on", "off", "unknown"))
	for i := range w.site.Nodes {
		n := &w.site.Nodes[i]
		n.Images, n.Complete, n.Pressure = nil, rapid.Bool().Draw(t, "complete"), rapid.Bool().Draw(t, "pressure")
		n.Kubelet, n.Runtime = pick("kubelet", "v1.34.0", "v1.36.3", ""), pick("runtime", "containerd", "cri-o")
		n.Verification = pick("verification", "", verifyNever, verifyAlways, verifyListedNo, verifyPreloadedNo)
		for range rapid.IntRange(0, 2).Draw(t, "images") {
			w.cache(i, pick("cached", name, repo+":latest"), repo+"@"+digest("cached digest"))
			n.Images[len(n.Images)-1].Record = model.PullRecord(pick("record", "", "none", "anyone", "others"))
		}
	}
	w.site.Published[name] = model.Published{Digest: digest("published"), Gone: rapid.Bool().Draw(t, "gone")}
	return w
}

// A digest names one image for ever: no event changes it.
func TestDigestNeverChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		w.use().Image = repo + "@" + d("a")
		w.use().Runs = repo + "@" + d("a")
		for _, a := range New(w.site).ForecastAll(&w.pod, w.use()) {
			if a.Outcome == model.OutcomeChanges || a.To != "" && a.To != d("a") {
				t.Fatalf("%+v", a)
			}
		}
	})
}

// What needs no registry with the registry down needs none with it up, and what
// a Never container runs does not depend on it at all.
func TestRegistryDownIsNeverBetter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		o := New(w.site)
		for _, e := range Events() {
			up, down := o.Forecast(&w.pod, w.use(), e, Up), o.Forecast(&w.pod, w.use(), e, Down)
			if down.Outcome == model.OutcomeSame && up.Outcome == model.OutcomeFails {
				t.Fatalf("%s: same without a registry, fails with one: %+v", e, up)
			}
			if w.use().Policy == model.PullNever && w.site.AlwaysPull != AdmissionOn && (up.Outcome != down.Outcome || up.To != down.To) && up.Reason != ReasonRace {
				t.Fatalf("%s: policy Never depends on the registry: %+v %+v", e, up, down)
			}
		}
	})
}

// Every answer is one of the words, says why, names where it goes only if it
// goes somewhere, and is the same when asked again.
func TestAnswersAreWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		o := New(w.site)
		first := o.ForecastAll(&w.pod, w.use())
		for i, a := range o.ForecastAll(&w.pod, w.use()) {
			if fmt.Sprint(a) != fmt.Sprint(first[i]) {
				t.Fatalf("asked again: %+v, then %+v", first[i], a)
			}
			switch {
			case !slices.Contains(outcomeOrder, a.Outcome), a.Why == "", a.Reason == "":
				t.Fatalf("not whole: %+v", a)
			case a.To == "" && (a.Outcome == model.OutcomeSame || a.Outcome == model.OutcomeChanges),
				a.To != "" && (a.Outcome == model.OutcomeFails || a.Outcome == model.OutcomeNone):
				t.Fatalf("where to: %+v", a)
			case a.Outcome == model.OutcomeStarts && w.use().Runs != "":
				t.Fatalf("something runs: %+v", a)
			}
		}
	})
}
