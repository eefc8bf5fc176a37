package tagscmd

import (
	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/cli/manifests"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/source/lint"
)

type lintFlags struct {
	config, bundle string
	offline        bool
	strict, rules  bool
	output         *string
}

func newLint(_ *cluster.Access) *cobra.Command {
	f := &lintFlags{}
	c := &cobra.Command{
		Use: "lint PATH...", Short: "Check image references and pull policies in manifests",
		Long: `Check the image references and pull policies of manifests (YAML or JSON files,
folders with them, or - for standard input) against fourteen rules, T01 to T14.
Charts are rendered first: helm template . | refit tags lint -

A rule is switched off in ` + manifests.ConfigName + ` (or --config FILE), with a reason:

  offline: true
  schemes: [{repository: registry.example/shop/*, scheme: rev}]
  off: [{rule: T04, reason: "digests come from CI", objects: ["Deployment/shop/*"]}]

or in an object's annotation: ` + lint.OffAnnotation + `: "T04: digests come from CI".

Exit codes: 0 no errors (with --strict: no warnings either), 2 a file cannot be
read, 3 errors.`,
		Example: "  refit tags lint deploy/\n  refit tags lint --offline --bundle k8s.bundle deploy/ -o json\n  refit tags lint --rules",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if err := checkOutput(*f.output); err != nil {
				return err
			}
			if f.rules {
				return render.Rules(cmd.OutOrStdout(), *f.output, lint.Rules())
			}
			if len(paths) == 0 {
				return exit.Usagef("requires at least one PATH: a file or folder of manifests, or - for standard input")
			}
			return f.run(cmd, paths)
		},
	}
	f.output = outputFlag(c)
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "what is switched off and declared (default "+manifests.ConfigName+" if it is there)")
	fl.StringVar(&f.bundle, "bundle", "", "bundle that the images are to come from")
	fl.BoolVar(&f.offline, "offline", false, "the manifests are for a site without a registry")
	fl.BoolVar(&f.strict, "strict", false, "warnings count as errors")
	fl.BoolVar(&f.rules, "rules", false, "list the rules")
	return c
}

func (f *lintFlags) run(cmd *cobra.Command, paths []string) error {
	conf, err := manifests.Config(f.config)
	if err != nil {
		return err
	}
	objects, err := manifests.Read(cmd.InOrStdin(), paths)
	if err != nil {
		return err
	}
	site := lint.Site{Offline: f.offline}
	if f.bundle != "" {
		if site.Bundle, err = manifests.BundleImages(f.bundle); err != nil {
			return err
		}
	}
	r := lint.Check(objects, site, conf)
	if err := render.Lint(cmd.OutOrStdout(), *f.output, r); err != nil {
		return err
	}
	if r.Errors > 0 || f.strict && r.Warnings > 0 {
		return exit.Silent(exit.Blocked)
	}
	return nil
}
