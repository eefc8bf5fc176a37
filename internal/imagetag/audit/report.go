package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// Facts of a cluster.
type Facts struct {
	// Offline: no registry can be asked on this site.
	Offline bool
	Nodes   []model.ImageNode
	Pods    []model.ImagePod
	// Published by repository:tag.
	Published map[string]model.Published
	Same      *model.SameImages
	// Previous is the digest that ran before, by repository, where a track knows.
	Previous map[string]string
	// Restart forecasts a crash and a reboot for a container, with the registry of this
	// site; nil to skip the forecast.
	Restart func(p *model.ImagePod, u *model.ImageUse) []model.RestartAnswer
	// Scheme is the declared one of a repository.
	Scheme func(repository string) (imagetag.Scheme, bool)
}

// Kinds of lines.
const (
	KindWorkload = "workload"
	KindStatic   = "static pod"
	KindNetwork  = "network"
	KindSandbox  = "sandbox"
	KindOS       = "os"
)

// Line is one image of one workload.
type Line struct {
	// Where it is: Deployment shop/web, static pod kube-system/etcd, nodes.
	Where string `json:"where"`
	Kind  string `json:"kind"`
	// Container is its name; empty for sandbox and operating system.
	Container string `json:"container,omitempty"`
	// Image is the reference as written, of an operating system its name.
	Image  string `json:"image"`
	Policy string `json:"policy,omitempty"`
	// Pods that run it, or nodes.
	Pods int `json:"pods"`
	// State is the worst of States.
	State  string   `json:"state"`
	States []string `json:"states"`
	// Running digests, the most common first.
	Running []Running `json:"running,omitempty"`
	// Newest is what the registry answers, LongTag its name.
	Newest  string `json:"newest,omitempty"`
	LongTag string `json:"longTag,omitempty"`
	// Message is a sentence about each state, Fix what to do about the worst.
	Message string `json:"message,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// Running is one image that pods of a line run.
type Running struct {
	Digest  string   `json:"digest"`
	LongTag string   `json:"longTag,omitempty"`
	Pods    int      `json:"pods"`
	Nodes   []string `json:"nodes"`
}

// Report is the whole table.
type Report struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Verdict is one sentence.
	Verdict string `json:"verdict"`
	// Act: something wants a person.
	Act     bool `json:"act"`
	Offline bool `json:"offline,omitempty"`
	Nodes   int  `json:"nodes"`
	Pods    int  `json:"pods"`
	// Counts of lines by their state.
	Counts map[string]int `json:"counts"`
	Lines  []Line         `json:"lines"`
}

// NewReport builds the report.
func NewReport(f Facts) Report {
	if f.Same == nil {
		f.Same = &model.SameImages{}
	}
	m := newAuditor(&f)
	r := Report{APIVersion: "refit.dev/images/v1", Kind: "ImageReport", Offline: f.Offline, Nodes: len(f.Nodes), Pods: len(f.Pods), Counts: map[string]int{}, Lines: []Line{}}
	for _, g := range m.groupContainers() {
		r.Lines = append(r.Lines, m.auditGroup(g))
	}
	r.Lines = append(r.Lines, m.nodeLines()...)
	slices.SortStableFunc(r.Lines, func(a, b Line) int {
		return cmp.Or(rank(a.State)-rank(b.State), strings.Compare(a.Where, b.Where), strings.Compare(a.Container, b.Container), strings.Compare(a.Image, b.Image))
	})
	for _, l := range r.Lines {
		r.Counts[l.State]++
		r.Act = r.Act || needsAction(l.State)
	}
	r.Verdict = r.verdict()
	return r
}

// verdict: what wants a person first, then the rest.
func (r Report) verdict() string {
	if len(r.Lines) == 0 {
		return "No images: there are no pods."
	}
	var parts []string
	fine := 0
	for _, s := range states {
		n := r.Counts[s.word]
		switch {
		case n == 0:
		case s.word == Current:
			fine = n
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, s.says))
		}
	}
	total := fmt.Sprintf("%s on %s", text.Count(len(r.Lines), "image"), text.Count(r.Nodes, "node"))
	if len(parts) == 0 {
		return total + ": all current."
	}
	out := total + ": " + strings.Join(parts, ", ")
	if fine > 0 {
		out += fmt.Sprintf("; %d current", fine)
	}
	return out + "."
}
