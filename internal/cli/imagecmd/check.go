package imagecmd

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/convert"
)

// Finding is a rule that a source breaks.
type Finding struct {
	Source  string `json:"source"`
	Rule    string `json:"rule"`
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	// Waived is the reason why it blocks nothing.
	Waived string `json:"waived,omitempty"`
}

// Check is the result for a target.
type Check struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Target     string `json:"target"`
	Release    string `json:"release,omitempty"`
	OS         string `json:"os,omitempty"`
	OK         bool   `json:"ok"`
	// Sources counts the checked sources, Blocked those that are too old.
	Sources  int       `json:"sources"`
	Blocked  int       `json:"blocked"`
	Findings []Finding `json:"findings"`
}

func newCheck(a *inputs.Access) *cobra.Command {
	var target string
	var from view
	c := &cobra.Command{
		Use: "check --target VERSION", Short: "Check that new machines can join at a version", Args: cobra.NoArgs,
		Long: `List the sources of machines whose boot image is too old for a version of
Kubernetes or a release of the platform, before an update starts: every broken
rule and its fix.

Exit codes: 0 new machines can join, 3 at least one source is too old or unknown.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := componentversion.ParseOS(target); err != nil {
				return console.UsageError(fmt.Errorf("--target: %w", err))
			}
			s, err := from.site(cmd, a)
			if err != nil {
				return err
			}
			v := s.check(target, time.Now())
			if err = from.show(a, v); err == nil && !v.OK {
				return console.SilentExit(console.ExitBlocked)
			}
			return err
		},
	}
	c.Flags().StringVar(&target, "target", "", "version that nodes will run")
	from.add(c)
	_ = c.MarkFlagRequired("target")
	return c
}

func (s *site) policy(name string) *v1alpha1.BootImagePolicy {
	for i := range s.policies {
		if s.policies[i].Name == name {
			return &s.policies[i]
		}
	}
	return nil
}

// releases returns the releases and rules of the streams that a policy names.
func (s *site) releases(p *v1alpha1.BootImagePolicy) (out []convert.StreamRelease, rules []v1alpha1.SkewRule) {
	if p == nil {
		return nil, nil
	}
	for _, name := range p.Spec.Streams {
		for i := range s.streams {
			if st := &s.streams[i]; st.Name == name {
				out = append(out, convert.StreamRelease{Release: st.Status.Release, Kubernetes: st.Status.Kubernetes, OS: st.Status.OS, OSStreams: st.Status.OSStreams})
				rules = append(rules, st.Spec.Rules...)
			}
		}
	}
	return out, rules
}

func (s *site) check(target string, now time.Time) Check {
	v := Check{APIVersion: "refit.dev/bootimagecheck/v1", Kind: "BootImageCheck", Target: target, OK: true, Sources: len(s.sources), Findings: []Finding{}}
	for i := range s.sources {
		m := &s.sources[i]
		p := s.policy(m.Status.Policy)
		releases, rules := s.releases(p)
		t := convert.SkewTarget(target, releases, p, m, true)
		v.Release, v.OS = t.Release, t.OS
		fs := convert.EvaluateSkew(m, p, rules, t, now)
		for _, f := range fs {
			one := Finding{Source: m.Name, Rule: f.Rule, Kind: f.Kind, Message: f.Message, Waived: f.Waived}
			if f.Waived == "" {
				one.Fix = convert.SkewFix(m)
			}
			v.Findings = append(v.Findings, one)
		}
		deleted := convert.DeletedPolicy(m, func(name string) bool { return s.policy(name) != nil })
		if deleted != "" {
			v.Findings = append(v.Findings, Finding{Source: m.Name, Rule: "policy", Kind: v1alpha1.ReasonBootImagePolicyDeleted, Message: "BootImagePolicy " + deleted + " was deleted, and no rule checks its image", Fix: convert.DeletedPolicyFix(m.Name)})
		}
		if skew.Blocks(fs) || deleted != "" {
			v.OK = false
			v.Blocked++
		}
	}
	return v
}

func (v Check) text(w io.Writer) {
	switch {
	case v.Sources == 0:
		fmt.Fprintln(w, "No source of machines to check: create a BootImagePolicy or a MachineSource.")
	case v.OK:
		fmt.Fprintf(w, "Machines of all %d sources can join at %s.\n", v.Sources, v.Target)
	default:
		fmt.Fprintf(w, "Machines of %d of %d sources could not join at %s:\n", v.Blocked, v.Sources, v.Target)
	}
	for _, f := range v.Findings {
		if f.Waived != "" {
			fmt.Fprintf(w, "\n%s: %s [%s]\n  waived: %s\n", f.Source, f.Message, f.Rule, f.Waived)
			continue
		}
		fmt.Fprintf(w, "\n%s: %s [%s]\n  %s\n", f.Source, f.Message, f.Rule, f.Fix)
	}
}
