package tagscmd

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert/auditfacts"
	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/imagetag/restartforecast"
	"github.com/refit-dev/refit/internal/render"
)

type lintFlags struct {
	config, bundle, dump   string
	offline, strict, rules bool
	cluster                bool
	output                 *string
}

func newLint(a *inputs.Access) *cobra.Command {
	f := &lintFlags{}
	c := &cobra.Command{
		Use: "lint PATH...", Short: "Check image references and pull policies in manifests",
		Long: `Check the image references and pull policies of manifests (YAML or JSON files,
directories with them, or - for standard input) against sixteen rules, T01 to T16.
Render charts first: helm template . | refit tags lint -

With --cluster or --dump FILE, check the objects of a cluster with its facts: images
on its nodes, registry content seen by tracks, admission plugins. With PATH as well,
check the manifests against those facts.

Disable a rule in ` + inputs.LintConfigName + ` (or --config FILE), with a reason:

  offline: true
  schemes: [{repository: registry.example/shop/*, scheme: rev}]
  off: [{rule: T04, reason: "digests come from CI", objects: ["Deployment/shop/*"]}]

or in an object's annotation: ` + lint.OffAnnotation + `: "T04: digests come from CI".

Exit codes: 0 no errors (with --strict: no warnings either), 2 unreadable file,
3 errors.`,
		Example: "  refit tags lint deploy/\n  refit tags lint --offline --bundle k8s.bundle deploy/ -o json\n  refit tags lint --rules",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if err := console.CheckOutput(*f.output); err != nil {
				return err
			}
			if f.rules {
				return render.Rules(cmd.OutOrStdout(), *f.output, lint.Rules())
			}
			if len(paths) == 0 && !f.cluster && f.dump == "" {
				return console.UsageErrorf("requires at least one PATH: a file or directory of manifests, or - for standard input; or --cluster, or --dump FILE")
			}
			return f.run(cmd, a, paths)
		},
	}
	f.output = console.OutputFlag(c)
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "disabled rules and declared schemes (default "+inputs.LintConfigName+" if it exists)")
	fl.StringVar(&f.bundle, "bundle", "", "bundle that must contain the images")
	fl.BoolVar(&f.cluster, "cluster", false, "check the cluster's objects, or with PATH use its facts")
	fl.StringVar(&f.dump, "dump", "", "the same from a dump (see refit tags check --help)")
	fl.BoolVar(&f.offline, "offline", false, "check for a site without a registry")
	fl.BoolVar(&f.strict, "strict", false, "warnings count as errors")
	fl.BoolVar(&f.rules, "rules", false, "list the rules")
	return c
}

func (f *lintFlags) run(cmd *cobra.Command, a *inputs.Access, paths []string) error {
	conf, err := inputs.ReadLintConfig(f.config)
	if err != nil {
		return err
	}
	objects, err := inputs.ReadManifests(cmd.InOrStdin(), paths)
	if err != nil {
		return err
	}
	site, err := f.site(cmd, a, &conf, &objects, len(paths) == 0)
	if err != nil {
		return err
	}
	r := lint.Check(objects, site, conf)
	if err := render.Lint(cmd.OutOrStdout(), *f.output, r); err != nil {
		return err
	}
	if r.Errors > 0 || f.strict && r.Warnings > 0 {
		return console.SilentExit(console.ExitBlocked)
	}
	return nil
}

// site has the facts of the cluster in which the objects will run. Without other objects
// those of the cluster are checked.
func (f *lintFlags) site(cmd *cobra.Command, a *inputs.Access, conf *lint.Config, objects *[]lint.Object, own bool) (site lint.Site, err error) {
	if f.cluster || f.dump != "" {
		known, err := gatherObjects(cmd.Context(), a, f.dump, f.cluster)
		if err != nil {
			return site, err
		}
		if own {
			*objects = known.Lint()
		}
		site = siteOf(known.Facts(), conf)
	}
	site.Offline = f.offline
	if f.bundle != "" {
		site.Bundle, err = inputs.ReadBundleImages(f.bundle)
	}
	return site, err
}

// siteOf returns the facts of a cluster; schemes of its tracks come after those of the
// user.
func siteOf(facts auditfacts.Facts, conf *lint.Config) lint.Site {
	for _, repository := range slices.Sorted(maps.Keys(facts.Schemes)) {
		conf.Schemes = append(conf.Schemes, lint.Declared{Repository: repository, Scheme: facts.Schemes[repository]})
	}
	return lint.Site{Nodes: facts.Nodes, Published: facts.Published, GoneDigests: facts.GoneDigests, AlwaysPull: facts.AlwaysPull == restartforecast.AdmissionOn}
}
