package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
)

// LimitsVersion is the format of the limits file, LimitsPath its path on a machine.
const (
	LimitsVersion = "refit.dev/first-boot/v1"
	LimitsPath    = "/etc/refit/first-boot.json"
)

// maxLimits is the size of the largest accepted file, in bytes.
const maxLimits = 256 << 10

// SkewLimits is the limits file: how new the boot image of a machine must be. It is part of the
// first-boot configuration, so that the machine can check itself without a network.
type SkewLimits struct {
	APIVersion string `json:"apiVersion"`
	Pool       string `json:"pool"`
	// Source is the MachineSource of the machine, empty if unknown.
	Source string `json:"source,omitempty"`
	// Target is what the machine will run.
	Target LimitsTarget `json:"target"`
	// Rules must hold unless one of the Waivers applies.
	Rules   []v1alpha1.SkewRule   `json:"rules"`
	Waivers []v1alpha1.SkewWaiver `json:"waivers,omitempty"`
	// Fix is the advice on the console.
	Fix string `json:"fix,omitempty"`
	// Report is where a machine reports a refusal, if anywhere.
	Report *ReportTo `json:"report,omitempty"`
}

// LimitsTarget is what the cluster runs.
type LimitsTarget struct {
	Kubernetes string `json:"kubernetes,omitempty"`
	Release    string `json:"release,omitempty"`
	OS         string `json:"os,omitempty"`
}

// ReportTo is the URL for refusals (https) and the CA certificate (PEM) of its server.
type ReportTo struct {
	URL string `json:"url"`
	CA  string `json:"ca"`
}

// RefusalReport is what a refused machine reports.
type RefusalReport struct {
	OS      string            `json:"os,omitempty"`
	Machine map[string]string `json:"machine,omitempty"`
	Message string            `json:"message"`
}

// JSON encodes the file.
func (f *SkewLimits) JSON() ([]byte, error) {
	f.APIVersion = LimitsVersion
	return json.Marshal(f)
}

// MachineRules returns the rules that a machine can check itself. It does not know the release
// of its image, and a minimum age does not matter any more.
func MachineRules(in []v1alpha1.SkewRule) []v1alpha1.SkewRule {
	var out []v1alpha1.SkewRule
	for _, r := range in {
		r.MinimumRelease, r.MinorsBehind, r.MinAgeDays = "", nil, nil
		if r.MinimumOS != "" || r.MajorSteps != nil || r.MaxAgeDays != nil || r.Incompatible != nil || len(r.MinimumFacts) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// ParseSkewLimits reads the file strictly: an unknown limit is an error, not ignored.
func ParseSkewLimits(data []byte) (*SkewLimits, error) {
	f := &SkewLimits{}
	if len(data) > maxLimits {
		return nil, fmt.Errorf("limits for boot images: more than %d bytes", maxLimits)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(f); err != nil {
		return nil, fmt.Errorf("limits for boot images: %w", err)
	}
	if f.APIVersion != LimitsVersion {
		return nil, fmt.Errorf("limits for boot images: version %q is not %s", f.APIVersion, LimitsVersion)
	}
	return f, nil
}

// BootedMachine is what a machine measured of itself.
type BootedMachine struct {
	// OS is the version of the image that it booted, empty if unknown.
	OS string
	// Facts are cpu, shim and grub.
	Facts map[string]string
}

// Evaluate returns the findings that refuse the machine.
func (f *SkewLimits) Evaluate(m BootedMachine, now time.Time) []skew.Finding {
	if len(f.Rules) == 0 {
		return nil
	}
	src := skew.Source{Name: f.Source, Mode: skew.Manual, OS: m.OS, Facts: m.Facts}
	for _, name := range []string{skew.FactCPU, skew.FactShim, skew.FactGrub} {
		src.Machines = append(src.Machines, skew.MachineFact{Name: name, Least: m.Facts[name], Example: "this machine"})
	}
	in := skew.Input{Source: src, Target: skew.Target{Kubernetes: f.Target.Kubernetes, Release: f.Target.Release, OS: f.Target.OS}, Rules: SkewRules(f.Rules), Waivers: SkewWaivers(f.Waivers), Now: now}
	return slices.DeleteFunc(skew.Evaluate(in), func(fi skew.Finding) bool { return fi.Waived != "" || isIrrelevantUnknown(f, fi) })
}

// isIrrelevantUnknown reports whether a finding only says that the image is unknown, and no
// rule needs its version.
func isIrrelevantUnknown(f *SkewLimits, fi skew.Finding) bool {
	return fi.Rule == skew.RuleKnown && !slices.ContainsFunc(f.Rules, func(r v1alpha1.SkewRule) bool {
		return r.MinimumOS != "" || r.MajorSteps != nil || r.MaxAgeDays != nil
	})
}

// Message is the text for the console and the cluster: image, violated rules, fix.
func (f *SkewLimits) Message(m BootedMachine, findings []skew.Finding) string {
	booted := "an image of an unknown version"
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
