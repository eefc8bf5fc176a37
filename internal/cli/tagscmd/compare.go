package tagscmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/render"
)

// compareView is what `refit tags compare -o json` prints.
type compareView struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Order      imagetag.Order `json:"order"` // a as seen from b
	Why        string         `json:"why"`
	Scheme     string         `json:"scheme"`
	A          string         `json:"a"`
	B          string         `json:"b"`
	ReadA      *imagetag.Tag  `json:"readA,omitempty"` // missing if the scheme cannot parse it
	ReadB      *imagetag.Tag  `json:"readB,omitempty"`
}

func newCompare(a *inputs.Access) *cobra.Command {
	var scheme, output *string
	var projects []string
	c := &cobra.Command{
		Use: "compare A B", Short: "Compare two tags: older, newer, same or incomparable",
		Long: `Print the order of A relative to B: the first word is older, newer, same or
incomparable, followed by the reason. A and B are tags, or references with their
repository. All four results have exit code 0. Only immutable tags (long tags, or tags
of a scheme that never moves them) have an order, and only within one scheme,
repository, build project and variant.`,
		Example: "  refit tags compare 2.6.2-rev10-b1.1 2.6.2-rev9-b1.1\n  refit tags compare v1.31.2 v1.31.10 --scheme semver",
		Args:    console.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, argv []string) error {
			if err := console.CheckOutput(*output); err != nil {
				return err
			}
			s, err := schemeOf(*scheme)
			if err != nil {
				return err
			}
			if len(projects) != 0 && len(projects) != 2 {
				return console.UsageErrorf("--project names the build projects of both: --project A,B")
			}
			v, err := compare(s, argv, projects)
			if err != nil {
				return err
			}
			if !console.IsTable(*output) {
				return render.Value(cmd.OutOrStdout(), *output, v)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", v.Order, v.Why)
			if !cmd.Flags().Changed("scheme") && v.Order == imagetag.Incomparable {
				hint(a, argv, s)
			}
			return nil
		},
	}
	scheme, output = schemeFlag(c), console.OutputFlag(c)
	c.Flags().StringSliceVar(&projects, "project", nil, "build projects of A and B: each counts its own builds")
	return c
}

// compare orders two arguments, each a tag or a reference.
func compare(s imagetag.Scheme, argv, projects []string) (compareView, error) {
	v := compareView{APIVersion: "refit.dev/tagcompare/v1", Kind: "TagCompare", Scheme: s.Name(), A: argv[0], B: argv[1]}
	var points [2]imagetag.Point
	var digests [2]string
	for i, text := range argv {
		p, digest, err := pointOf(text)
		if err != nil {
			return v, console.UsageError(err)
		}
		if len(projects) == 2 {
			p.Project = projects[i]
		}
		points[i], digests[i] = p, digest
	}
	if (points[0].Repository == "") != (points[1].Repository == "") {
		points[0].Repository, points[1].Repository = "", "" // one of them was left out
	}
	v.Order, v.Why = s.ComparePoints(points[0], points[1])
	if digests[0] != "" && digests[0] == digests[1] {
		v.Order, v.Why = imagetag.Same, "one digest: "+digests[0]
	}
	if t, err := s.Parse(points[0].Tag); err == nil {
		v.ReadA = &t
	}
	if t, err := s.Parse(points[1].Tag); err == nil {
		v.ReadB = &t
	}
	return v, nil
}

// pointOf reads a tag, or a reference with a tag.
func pointOf(text string) (imagetag.Point, string, error) {
	// 1:2.6.2 is a version with an epoch, and no tag; app:2.6.2 is a reference.
	named := strings.Contains(text, ":") && !strings.ContainsAny(text[:1], "0123456789")
	if !named && !strings.ContainsAny(text, "/@") {
		return imagetag.Point{Tag: text}, "", nil
	}
	r, err := imagetag.ParseRef(text)
	if err != nil {
		return imagetag.Point{}, "", err
	}
	if r.Tag == "" {
		return imagetag.Point{}, "", fmt.Errorf("reference %q has no tag: a digest alone has no order; add its long tag", text)
	}
	return imagetag.Point{Repository: r.Repository, Tag: r.Tag}, r.Digest, nil
}

// hint names the scheme that the tags seem to follow, if it differs from the used one.
func hint(a *inputs.Access, tags []string, used imagetag.Scheme) {
	if g, why := imagetag.Guess(tags); g.Name() != "" && g.Name() != used.Name() {
		a.Note("hint: %s: --scheme %s", why, g.Name())
	}
}
