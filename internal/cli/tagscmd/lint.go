package tagscmd

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/cli/imagecollect"
	"github.com/refit-dev/refit/internal/cli/manifests"
	"github.com/refit-dev/refit/internal/cli/usage"
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

func newLint(a *cluster.Access) *cobra.Command {
	f := &lintFlags{}
	c := &cobra.Command{
		Use: "lint PATH...", Short: "Check image references and pull policies in manifests",
		Long: `Check the image references and pull policies of manifests (YAML or JSON files,
folders with them, or - for standard input) against sixteen rules, T01 to T16.
Charts are rendered first: helm template . | refit tags lint -

With --cluster, or --dump FILE, the objects of a cluster are checked, and its facts
are known: what its nodes have, what tracks heard of registries, admission plugins.
With PATH as well, the manifests are checked against those facts.

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
			if err := usage.CheckOutput(*f.output); err != nil {
				return err
			}
			if f.rules {
				return render.Rules(cmd.OutOrStdout(), *f.output, lint.Rules())
			}
			if len(paths) == 0 && !f.cluster && f.dump == "" {
				return exit.Usagef("requires at least one PATH: a file or folder of manifests, or - for standard input; or --cluster, or --dump FILE")
			}
			return f.run(cmd, a, paths)
		},
	}
	f.output = usage.OutputFlag(c)
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "what is switched off and declared (default "+manifests.ConfigName+" if it is there)")
	fl.StringVar(&f.bundle, "bundle", "", "bundle that the images are to come from")
	fl.BoolVar(&f.cluster, "cluster", false, "check the cluster's objects, or with PATH use its facts")
	fl.StringVar(&f.dump, "dump", "", "the same from a dump (see refit tags check --help)")
	fl.BoolVar(&f.offline, "offline", false, "the manifests are for a site without a registry")
	fl.BoolVar(&f.strict, "strict", false, "warnings count as errors")
	fl.BoolVar(&f.rules, "rules", false, "list the rules")
	return c
}

func (f *lintFlags) run(cmd *cobra.Command, a *cluster.Access, paths []string) error {
	conf, err := manifests.Config(f.config)
	if err != nil {
		return err
	}
	objects, err := manifests.Read(cmd.InOrStdin(), paths)
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
		return exit.Silent(exit.Blocked)
	}
	return nil
}

// site is what is known of where the objects are to run; those of the cluster
// itself are the objects if no others are given.
func (f *lintFlags) site(cmd *cobra.Command, a *cluster.Access, conf *lint.Config, objects *[]lint.Object, own bool) (site lint.Site, err error) {
	if f.cluster || f.dump != "" {
		known, err := imagecollect.Gather(cmd.Context(), a, f.dump, f.cluster)
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
		site.Bundle, err = manifests.BundleImages(f.bundle)
	}
	return site, err
}

// siteOf is what a cluster knows; the schemes that its tracks declare come after
// those of a person.
func siteOf(facts auditfacts.Facts, conf *lint.Config) lint.Site {
	for _, repository := range slices.Sorted(maps.Keys(facts.Schemes)) {
		conf.Schemes = append(conf.Schemes, lint.Declared{Repository: repository, Scheme: facts.Schemes[repository]})
	}
	return lint.Site{Nodes: facts.Nodes, Published: facts.Published, GoneDigests: facts.GoneDigests, AlwaysPull: facts.AlwaysPull == restartforecast.AdmissionOn}
}
