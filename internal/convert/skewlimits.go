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

// LimitsVersion is the version of the file with the limits, LimitsPath its path on a machine.
const (
	LimitsVersion = "refit.dev/first-boot/v1"
	LimitsPath    = "/etc/refit/first-boot.json"
)

// longestLimits is the size of the largest file that is read, in bytes.
const longestLimits = 256 << 10

// SkewLimits is the file with how new the boot image of a machine must be. It is in the
// configuration of the first boot, so that the machine needs no answer from elsewhere.
type SkewLimits struct {
	APIVersion string `json:"apiVersion"`
	Pool       string `json:"pool"`
	// Source is the MachineSource that the machine comes from, empty if nobody says.
	Source string `json:"source,omitempty"`
	// Target is what the machine is to run.
	Target LimitsTarget `json:"target"`
	// Rules that must hold, and Waivers of them.
	Rules   []v1alpha1.SkewRule   `json:"rules"`
	Waivers []v1alpha1.SkewWaiver `json:"waivers,omitempty"`
	// Fix is what people read on the console.
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

// ReportTo is the address for refusals (https) with the authority (PEM) of its certificate.
type ReportTo struct {
	URL string `json:"url"`
	CA  string `json:"ca"`
}

// RefusalReport is what the machine reports when it is refused.
type RefusalReport struct {
	OS      string            `json:"os,omitempty"`
	Machine map[string]string `json:"machine,omitempty"`
	Message string            `json:"message"`
}

// JSON of the file.
func (f *SkewLimits) JSON() ([]byte, error) {
	f.APIVersion = LimitsVersion
	return json.Marshal(f)
}

// MachineRules are those that a machine can check by itself: it does not know to which
// release its image belongs, and that it is too fresh is of no use any more.
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

// ParseSkewLimits reads the file strictly: a limit that is not understood is not passed over.
func ParseSkewLimits(data []byte) (*SkewLimits, error) {
	f := &SkewLimits{}
	if len(data) > longestLimits {
		return nil, fmt.Errorf("limits for boot images: more than %d bytes", longestLimits)
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
	// OS version of the image that it booted; empty if nothing says it.
	OS string
	// Facts of it: cpu, shim, grub.
	Facts map[string]string
}

// Judge returns the findings that refuse the machine.
func (f *SkewLimits) Judge(m BootedMachine, now time.Time) []skew.Finding {
	if len(f.Rules) == 0 {
		return nil
	}
	src := skew.Source{Name: f.Source, Mode: skew.Manual, OS: m.OS, Facts: m.Facts}
	for _, name := range []string{skew.FactCPU, skew.FactShim, skew.FactGrub} {
		src.Machines = append(src.Machines, skew.MachineFact{Name: name, Least: m.Facts[name], Example: "this machine"})
	}
	in := skew.Input{Source: src, Target: skew.Target{Kubernetes: f.Target.Kubernetes, Release: f.Target.Release, OS: f.Target.OS}, Rules: SkewRules(f.Rules), Waivers: SkewWaivers(f.Waivers), Now: now}
	return slices.DeleteFunc(skew.Judge(in), func(fi skew.Finding) bool { return fi.Waived != "" || isKnownOnly(f, fi) })
}

// passes: that the image is not known refuses by itself only where a rule asks for
// its version.
func isKnownOnly(f *SkewLimits, fi skew.Finding) bool {
	return fi.Rule == skew.RuleKnown && !slices.ContainsFunc(f.Rules, func(r v1alpha1.SkewRule) bool {
		return r.MinimumOS != "" || r.MajorSteps != nil || r.MaxAgeDays != nil
	})
}

// Message for the console and the cluster: image, what is wanted, the fix.
func (f *SkewLimits) Message(m BootedMachine, findings []skew.Finding) string {
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
