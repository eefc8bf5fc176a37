// Package skewlimits is what a machine is told at its first boot: how new its boot
// image must be. It stands in the configuration that the machine is given, so that
// the check on the machine needs nobody's answer.
//
// Promise: the machine is judged by the same rules, in the same way, as its source
// in the cluster. What cannot be read, of the limits or of the machine, does not
// hold: it is said, not let pass. Without a rule nothing is refused.
//
// Inputs: rules of policies and streams; what a machine says of itself. Outputs:
// the file, findings. Callers: controller/joinserver writes it, agent/firstcheck judges.
package skewlimits

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/convert/skewfacts"
)

// Version of the file, and where it stands on a machine.
const (
	Version = "refit.dev/first-boot/v1"
	Path    = "/etc/refit/first-boot.json"
)

// longest file that is read, in bytes.
const longest = 256 << 10

// File with the limits.
type File struct {
	APIVersion string `json:"apiVersion"`
	Pool       string `json:"pool"`
	// Source is the MachineSource that the machine comes from, empty if nobody says.
	Source string `json:"source,omitempty"`
	// Target is what the machine is to run.
	Target Target `json:"target"`
	// Rules that must hold, and Waivers of them.
	Rules   []v1alpha1.SkewRule   `json:"rules"`
	Waivers []v1alpha1.SkewWaiver `json:"waivers,omitempty"`
	// Fix is what people read on the console.
	Fix string `json:"fix,omitempty"`
	// Report is where a refusal is told, if anywhere.
	Report *Report `json:"report,omitempty"`
}

// Target of the cluster.
type Target struct {
	Kubernetes string `json:"kubernetes,omitempty"`
	Release    string `json:"release,omitempty"`
	OS         string `json:"os,omitempty"`
}

// Report is an address (https) with the authority (PEM) of its certificate.
type Report struct {
	URL string `json:"url"`
	CA  string `json:"ca"`
}

// Told is what the machine reports when it is refused.
type Told struct {
	OS      string            `json:"os,omitempty"`
	Machine map[string]string `json:"machine,omitempty"`
	Message string            `json:"message"`
}

// JSON of the file.
func (f *File) JSON() ([]byte, error) {
	f.APIVersion = Version
	return json.Marshal(f)
}

// Rules are those that a machine can judge of itself: it does not know to which
// release its image belongs, and that it is too fresh is of no use any more.
func Rules(in []v1alpha1.SkewRule) []v1alpha1.SkewRule {
	var out []v1alpha1.SkewRule
	for _, r := range in {
		r.MinimumRelease, r.MinorsBehind, r.MinAgeDays = "", nil, nil
		if r.MinimumOS != "" || r.MajorSteps != nil || r.MaxAgeDays != nil || r.Incompatible != nil || len(r.MinimumFacts) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// Parse reads the file strictly: a limit that is not understood is not passed over.
func Parse(data []byte) (*File, error) {
	f := &File{}
	if len(data) > longest {
		return nil, fmt.Errorf("limits for boot images: more than %d bytes", longest)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(f); err != nil {
		return nil, fmt.Errorf("limits for boot images: %w", err)
	}
	if f.APIVersion != Version {
		return nil, fmt.Errorf("limits for boot images: version %q is not %s", f.APIVersion, Version)
	}
	return f, nil
}

// Machine is what a machine measured of itself.
type Machine struct {
	// OS version of the image that it booted; empty if nothing says it.
	OS string
	// Facts of it: cpu, shim, grub.
	Facts map[string]string
}

// Judge returns the findings that refuse the machine.
func (f *File) Judge(m Machine, now time.Time) []skew.Finding {
	if len(f.Rules) == 0 {
		return nil
	}
	src := skew.Source{Name: f.Source, Mode: skew.Manual, OS: m.OS, Facts: m.Facts}
	for _, name := range []string{skew.FactCPU, skew.FactShim, skew.FactGrub} {
		src.Machines = append(src.Machines, skew.MachineFact{Name: name, Least: m.Facts[name], Example: "this machine"})
	}
	in := skew.Input{Source: src, Target: skew.Target{Kubernetes: f.Target.Kubernetes, Release: f.Target.Release, OS: f.Target.OS}, Rules: skewfacts.Rules(f.Rules), Waivers: skewfacts.Waivers(f.Waivers), Now: now}
	return slices.DeleteFunc(skew.Judge(in), func(fi skew.Finding) bool { return fi.Waived != "" || passes(f, fi) })
}

// passes: that the image is not known refuses by itself only where a rule asks for
// its version.
func passes(f *File, fi skew.Finding) bool {
	return fi.Rule == skew.RuleKnown && !slices.ContainsFunc(f.Rules, func(r v1alpha1.SkewRule) bool {
		return r.MinimumOS != "" || r.MajorSteps != nil || r.MaxAgeDays != nil
	})
}

// Message for the console and the cluster: image, what is wanted, the cure.
func (f *File) Message(m Machine, findings []skew.Finding) string {
	booted := "an image that does not say its version"
	if m.OS != "" {
		booted = "an image of OS " + m.OS
	}
	var why []string
	for _, fi := range findings {
		if !slices.Contains(why, fi.Message) {
			why = append(why, fi.Message)
		}
	}
	text := fmt.Sprintf("This machine cannot join pool %s: it was started from %s, and %s.", f.Pool, booted, strings.Join(why, "; "))
	if f.Fix != "" {
		text += " " + f.Fix
	}
	return text
}
