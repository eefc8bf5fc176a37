package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// Severity of a finding.
type Severity string

// Severities, the worst first.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

var severities = []Severity{Error, Warning, Info}

// Use is one image reference of an object.
type Use struct {
	model.ImageUse
	// Line of the reference in its file, PolicyLine of its pull policy; 0 if there
	// is none.
	Line, PolicyLine int
}

// Object is a pod, a template of pods, or a setting, as a manifest or the cluster
// has it.
type Object struct {
	Kind, Namespace, Name string
	// File and Line where it begins; empty for an object of the cluster.
	File string
	Line int
	// Static: a kubelet runs it from a file. Critical: a node, or the cluster, does
	// not come up without it.
	Static, HostNetwork, Critical bool
	// Replicas wanted; -1 if the kind has none.
	Replicas int
	// Surges: a rollout starts the new pod before it ends the old one. AfterKill: it
	// pulls only once the old pod is gone.
	Surges, AfterKill bool
	// Labels of its pods.
	Labels, NodeSelector map[string]string
	Tolerates            []model.Toleration
	Uses                 []Use
	// Args of its containers, for settings of the API server.
	Args []string
	// Off are rules that an annotation switches off, with the reason.
	Off map[string]string
	// Owner writes the object, as far as it says so: what is changed elsewhere is
	// written back.
	Owner string
	// Budget, Kubelet, Hooks: other kinds that a rule checks.
	Budget  *Budget
	Kubelet *Kubelet
	Hooks   []Hook
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Labels map[string]string
	// AllowsNone: it allows no disruption, with any number of pods.
	AllowsNone bool
	// MinAvailable as a number, -1 if it is not one.
	MinAvailable int
}

// Kubelet is what a kubelet's configuration says about images.
type Kubelet struct {
	Verification string
	Allowed      []string
	// MaxAge in seconds after which an unused image is collected, 0 for never.
	MaxAge int64
	// Version of the kubelet, empty if unknown.
	Version string
	// VerificationLine and MaxAgeLine in its file.
	VerificationLine, MaxAgeLine int
}

func (o *Object) id() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Site is what is known of where the objects are to run.
type Site struct {
	// Offline: no registry can be asked.
	Offline bool
	// Publishing: the objects are about to be published, not read.
	Publishing bool
	// Bundle has the names (repository:tag) of the images that it brings, with
	// their digests; nil without a bundle.
	Bundle map[string]string
	// Published by repository:tag; GoneDigests are repository@digest that a registry
	// says it does not have.
	Published   map[string]model.Published
	GoneDigests map[string]bool
	Nodes       []model.ImageNode
	// AlwaysPull: an API server has the admission plugin AlwaysPullImages.
	AlwaysPull bool
}

// Finding is one thing that a rule found.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`
	// Object as kind/namespace/name.
	Object    string `json:"object,omitempty"`
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"`
	// Owner writes the object: the fix belongs there.
	Owner   string `json:"owner,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// Off is why a person switched the rule off for this; empty if it is on.
	Off string `json:"off,omitempty"`
}

// Place of a finding for people: file:line, else the object.
func (f Finding) Place() string {
	switch {
	case f.File != "" && f.Line > 0:
		return fmt.Sprintf("%s:%d", f.File, f.Line)
	case f.File != "":
		return f.File
	}
	return f.Object
}

// Report is what all rules found.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Headline   string    `json:"headline"`
	Errors     int       `json:"errors"`
	Warnings   int       `json:"warnings"`
	Infos      int       `json:"infos"`
	Objects    int       `json:"objects"`
	Findings   []Finding `json:"findings"`
	// Off are findings of rules that a person switched off.
	Off []Finding `json:"off,omitempty"`
}

// Check asks every rule about every object.
func Check(objects []Object, s Site, c Config) Report {
	s.Offline = s.Offline || c.Offline
	x := &check{objects: objects, site: s, config: c, schemes: map[string]imagetag.Scheme{}}
	for _, r := range Rules() {
		x.rule = r.ID
		r.check(x)
	}
	return x.report()
}

// check is one run over all objects.
type check struct {
	objects  []Object
	site     Site
	config   Config
	rule     string
	findings []Finding
	schemes  map[string]imagetag.Scheme
}

// addUse notes a finding about a use of an image, or about the object if u is nil.
func (x *check) addUse(o *Object, u *Use, sev Severity, message, fix string) {
	f := Finding{Rule: x.rule, Severity: sev, File: o.File, Line: o.Line, Object: o.id(), Owner: o.Owner, Message: message, Fix: fix}
	if u != nil {
		f.Container, f.Image = u.Container, u.Image
		if u.Line > 0 {
			f.Line = u.Line
		}
	}
	x.addFinding(o, f)
}

// atPolicy puts the last finding where the pull policy stands.
func (x *check) atPolicy(u *Use) {
	if u.PolicyLine > 0 {
		x.findings[len(x.findings)-1].Line = u.PolicyLine
	}
}

func (x *check) addFinding(o *Object, f Finding) {
	f.Off = o.Off[f.Rule]
	if f.Off == "" {
		f.Off = x.config.offReason(f)
	}
	x.findings = append(x.findings, f)
}

// uses calls f for every image reference that can be read.
func (x *check) uses(f func(o *Object, u *Use, r imagetag.Ref)) {
	for i := range x.objects {
		o := &x.objects[i]
		for j := range o.Uses {
			r, err := imagetag.ParseRef(o.Uses[j].Image)
			if err != nil {
				continue // T09 says it
			}
			f(o, &o.Uses[j], r)
		}
	}
}

// policy is the effective one: what the API server writes where none stands.
func policy(u *Use, r imagetag.Ref) model.PullPolicy {
	if u.Policy != "" {
		return u.Policy
	}
	return model.DefaultPullPolicy(r.Tag, r.Digest)
}

// nameOf is the reference with its tag, without its digest.
func nameOf(r imagetag.Ref) string {
	if r.Tag == "" {
		return r.Repository + ":latest"
	}
	return r.Repository + ":" + r.Tag
}

func (x *check) report() Report {
	r := Report{APIVersion: "refit.dev/lint/v1", Kind: "Lint", Objects: len(x.objects), Findings: []Finding{}}
	slices.SortStableFunc(x.findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Object, b.Object),
			strings.Compare(a.Rule, b.Rule), strings.Compare(a.Container, b.Container))
	})
	for _, f := range x.findings {
		if f.Off != "" {
			r.Off = append(r.Off, f)
			continue
		}
		r.Findings = append(r.Findings, f)
		switch f.Severity {
		case Error:
			r.Errors++
		case Warning:
			r.Warnings++
		case Info:
			r.Infos++
		}
	}
	r.Headline = r.headline()
	return r
}

func (r Report) headline() string {
	var parts []string
	for i, n := range []int{r.Errors, r.Warnings, r.Infos} {
		if n > 0 {
			parts = append(parts, countOf(n, severities[i]))
		}
	}
	out := "Nothing found"
	if len(parts) > 0 {
		out = strings.Join(parts, ", ")
	}
	out += " in " + text.Count(r.Objects, "object")
	if len(r.Off) > 0 {
		out += fmt.Sprintf("; %d switched off", len(r.Off))
	}
	return out + "."
}

// countOf counts findings of a severity; "info" has no plural.
func countOf(n int, s Severity) string {
	if s == Info {
		return fmt.Sprintf("%d %s", n, s)
	}
	return text.Count(n, string(s))
}
