package bundlecmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// lintFlags name the manifests that a bundle is created for.
type lintFlags struct {
	paths  []string
	config string
	strict bool

	rules   lint.Config
	objects []lint.Object
	err     io.Writer
}

func (f *lintFlags) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.paths, "manifests", nil, "manifests whose images the bundle must contain: files or directories, may be repeated")
	fl.StringVar(&f.config, "lint-config", "", "disabled rules, with reasons (default "+inputs.LintConfigName+" if it exists)")
	fl.BoolVar(&f.strict, "strict", false, "refuse the bundle on warnings about images and manifests too")
}

func (f *lintFlags) read(c *cobra.Command) (err error) {
	f.err = c.ErrOrStderr()
	if f.rules, err = inputs.ReadLintConfig(f.config); err != nil {
		return err
	}
	f.objects, err = inputs.ReadManifests(c.InOrStdin(), f.paths)
	return err
}

// accept checks the images against the rules of a site without a registry.
func (f *lintFlags) accept(m *bundle.Metadata) error {
	r := f.report(m, f.objects)
	if r.Errors > 0 || f.strict && r.Warnings > 0 {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("the bundle was not created: %s Fix the manifests, add the images, or disable a rule with a reason (%s)", r.Headline, inputs.LintConfigName))
	}
	return nil
}

// acceptSources checks the objects of sources too. They are often made by others, so they
// refuse the bundle on request only.
func (f *lintFlags) acceptSources(m *bundle.Metadata, objects []lint.Object) error {
	if len(objects) == 0 {
		return nil
	}
	r := f.report(m, objects)
	if f.strict && r.Errors+r.Warnings > 0 {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("the bundle was not created: %s Fix the objects of its sources, or disable a rule with a reason (%s)", r.Headline, inputs.LintConfigName))
	}
	return nil
}

// report prints what the rules find.
func (f *lintFlags) report(m *bundle.Metadata, objects []lint.Object) lint.Report {
	r := lint.Check(objects, lint.Site{Offline: true, Publishing: true, Bundle: inputs.MergeImageNames(m.Images)}, f.rules)
	for _, found := range r.Findings {
		if found.Severity == lint.Info {
			continue
		}
		about := ""
		if found.Image != "" {
			about = " (" + found.Image + ")"
		}
		fmt.Fprintf(f.err, "%s: %s %s: %s%s\n", found.Place(), found.Severity, found.Rule, found.Message, about)
	}
	return r
}
