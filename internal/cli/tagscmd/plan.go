package tagscmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/text"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
	"github.com/refit-dev/refit/internal/imagetag/publish"
	"github.com/refit-dev/refit/internal/render"
)

// planView is what `refit tags plan -o json` prints.
type planView struct {
	APIVersion   string `json:"apiVersion"`
	Kind         string `json:"kind"`
	publish.Plan `json:",inline"`
}

// planCall is a call of `refit tags plan`.
type planCall struct {
	*source
	image, eventFile string
	event            publish.Event // of flags or the file
	rules            publish.Rules
	inside           string
	manifests        []string
	record           recordFlags
	caseName         string
	failIfNoop       bool
	output           *string
}

func newPlan(_ *inputs.Access) *cobra.Command {
	p := &planCall{}
	c := &cobra.Command{
		Use: "plan", Short: "Plan the tags to push and to move for a new image",
		Long: `Compare a new image with the published ones, and print the tags to push, in order. The case is
derived from content: 1 new version, 2 definition fixed, 3 automatic rebuild, 4a maintenance
of the application's package, 4b a tag that does not match the version. The command pushes
nothing. A refused plan has no steps and exit code 3; each reason has its word, a sentence and a
fix.

Before each step, check the tag: it must have the digest of the step (from). If it differs,
another publisher moved it: stop, and plan again. After an interrupted push, plan again to
continue.

The command reads the image from its registry (--image), with its tag and the labels
org.opencontainers.image.version, org.opencontainers.image.base.digest, dev.refit.definition,
dev.refit.rev and dev.refit.package-release. Or it reads all of this from a file (--event).

With --record it also writes the release record of the image: a file to attach to it, with the fixes
and the severity that you name, and whether manifests change. Tracks and bundles read it.

With --manifests it also reads the manifests that are published with the image. In cases 1 and 2
the image gets a new intermediate tag: every reference to the repository must name it first.`,
		Example: "  refit tags plan --repo registry.example/app --image registry.example/candidates/app:2.6.2-rev1-b5.1\n  refit tags plan --published tags.json --event event.json -o json",
		Args:    console.Args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	p.source, p.output = sourceFlags(c), console.OutputFlag(c)
	f := c.Flags()
	f.StringVar(&p.image, "image", "", "the new image, by tag or digest")
	f.StringVar(&p.eventFile, "event", "", "file with the new image and its facts, in JSON, instead of --image")
	f.StringVar(&p.event.App, "app", "", "version for the tag (default: of the image's tag, else of its label)")
	f.StringVar(&p.event.Variant, "variant", "", "variant of the image, one of the scheme's")
	f.Uint64Var(&p.event.Rev, "rev", 0, "revision of the image definition (default: of its tag or label, else as published, 1 for a new version)")
	f.StringVar(&p.event.Build, "build", "", "build number, or next: one above the greatest published (default: of its tag)")
	f.StringVar(&p.event.Project, "project", "", "project that counted the build")
	f.StringVar(&p.caseName, "case", "", "expected case: 1, 2, 3 or 4a; refused if the content shows another")
	f.StringVar(&p.inside, "inside", "", "version of the application as read from the image's packages, instead of its label")
	f.StringSliceVar(&p.event.Floating, "floating", nil, "more floating tags that follow the newest release, as latest does where it is in use")
	f.StringSliceVar(&p.event.Want, "want", nil, "tags to push: refused if one does not follow from the image")
	f.BoolVar(&p.rules.Gate, "gate", false, "publish approved digests only")
	f.StringSliceVar(&p.rules.Approved, "approved", nil, "digests that are approved")
	f.BoolVar(&p.rules.FewerPlatforms, "fewer-platforms", false, "let the set of platforms shrink")
	f.BoolVar(&p.rules.Adopt, "adopt", false, "let floating tags move away from images without a long tag")
	f.StringSliceVar(&p.manifests, "manifests", nil, "files or directories with the manifests of the image: refused while they name an older one and the case is 1 or 2")
	f.StringToStringVar(&p.rules.Mapping, "map", nil, "replace a character that is illegal in tags, such as +=_")
	p.record.add(c)
	f.BoolVar(&p.failIfNoop, "fail-if-noop", false, "exit with code 7 if there is nothing to push")
	c.MarkFlagsMutuallyExclusive("image", "event")
	return c
}

func (p *planCall) run(cmd *cobra.Command) error {
	if err := console.CheckOutput(*p.output); err != nil {
		return err
	}
	if p.image == "" && p.eventFile == "" {
		return console.UsageErrorf("no image: use --image REFERENCE or --event FILE")
	}
	if err := p.record.check(); err != nil {
		return err
	}
	plan, err := p.makePlan(cmd)
	if err != nil {
		return err
	}
	if err := p.print(cmd.OutOrStdout(), plan); err != nil {
		return err
	}
	switch {
	case plan.Refused():
		return console.SilentExit(console.ExitBlocked)
	case len(plan.Steps) == 0 && p.failIfNoop:
		return console.SilentExit(console.ExitNothingToDo)
	}
	return nil
}

// print writes the plan, and the release record.
func (p *planCall) print(w io.Writer, plan publish.Plan) error {
	if !console.IsTable(*p.output) {
		if err := render.Value(w, *p.output, planView{"refit.dev/tagplan/v1", "TagPlan", plan}); err != nil {
			return err
		}
		return p.record.write(nil, plan, p.event)
	}
	printPlan(w, plan, *p.output == render.Wide)
	return p.record.write(w, plan, p.event)
}

// makePlan reads the published tags and the new image, and plans.
func (p *planCall) makePlan(cmd *cobra.Command) (publish.Plan, error) {
	p.event.Case = publish.Case(p.caseName)
	if err := p.readManifests(cmd.InOrStdin()); err != nil {
		return publish.Plan{}, err
	}
	pub, err := p.read(cmd)
	if err != nil {
		return publish.Plan{}, err
	}
	if err := p.readEvent(cmd.Context(), cmd, pub); err != nil {
		return publish.Plan{}, err
	}
	if err := p.describe(cmd.Context(), &pub, publish.Needs(pub, p.event, p.rules)); err != nil {
		return publish.Plan{}, err
	}
	plan := publish.MakePlan(pub, p.event, p.rules)
	if plan.Steps == nil {
		plan.Steps = []publish.Step{} // scripts count them
	}
	return plan, nil
}

// readManifests finds the image references of the manifests.
func (p *planCall) readManifests(stdin io.Reader) error {
	if len(p.manifests) > 0 {
		p.rules.Manifests = []publish.Reference{}
	}
	for _, path := range p.manifests {
		err := inputs.EachManifest(stdin, path, func(m inputs.Manifest) error {
			refs, err := imagerefs.Find(m.File, m.Data)
			for i := range refs {
				p.rules.Manifests = append(p.rules.Manifests, publish.Reference{Image: refs[i].Image, Where: fmt.Sprintf("%s:%d", refs[i].File, refs[i].Line)})
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readEvent reads the new image; flags take precedence over its labels.
func (p *planCall) readEvent(ctx context.Context, cmd *cobra.Command, pub publish.Published) error {
	if p.eventFile != "" {
		flags := p.event
		p.event = publish.Event{}
		if err := readJSON(cmd, p.eventFile, &p.event); err != nil {
			return err
		}
		override(&p.event, flags)
	} else if err := p.readImage(ctx, pub); err != nil {
		return err
	}
	if p.inside != "" {
		p.event.Image.Version = p.inside
	}
	if p.event.Image.Digest == "" {
		return console.UsageErrorf("the event has no image.digest, the digest of the image to publish")
	}
	switch p.event.Case {
	case "", publish.NewVersion, publish.Fix, publish.Rebuild, publish.Maintenance:
		return nil
	}
	return console.UsageErrorf("case %q is not known: 1, 2, 3 or 4a", p.event.Case)
}

// override replaces values of the file by those of flags.
func override(e *publish.Event, flags publish.Event) {
	for _, s := range []struct{ to, from *string }{
		{&e.App, &flags.App}, {&e.Variant, &flags.Variant}, {&e.Build, &flags.Build}, {&e.Project, &flags.Project}, {(*string)(&e.Case), (*string)(&flags.Case)},
	} {
		if *s.from != "" {
			*s.to = *s.from
		}
	}
	if flags.Rev != 0 {
		e.Rev = flags.Rev
	}
	e.Floating = append(e.Floating, flags.Floating...)
	e.Want = append(e.Want, flags.Want...)
}

func (p *planCall) readImage(ctx context.Context, pub publish.Published) error {
	ref, err := imagetag.ParseRef(p.image)
	if err != nil {
		return console.UsageError(err)
	}
	s, err := schemeOf(pub.Scheme)
	if err != nil {
		return err
	}
	if err := p.open(); err != nil {
		return err
	}
	ask := ref
	if ask.Digest != "" {
		ask.Tag = "" // the digest is the image
	}
	i, err := p.reader.Image(ctx, ask.String())
	if err != nil {
		return err
	}
	p.event.Image = imageOf(i)
	if ref.Repository != pub.Repository {
		p.event.From = ref.Repository
	}
	p.event.FromTag(s, ref.Tag)
	p.event.FromLabels(s, i.Labels, ref.Repository, pub.Repository)
	return nil
}

// printPlan writes a plan for people; wide shows whole digests.
func printPlan(w io.Writer, p publish.Plan, wide bool) {
	digest := text.ShortDigest
	if wide {
		digest = func(s string) string { return s }
	}
	fmt.Fprintln(w, headline(p))
	fmt.Fprintf(w, "image %s for %s, scheme %s\n", digest(p.Image), p.Repository, p.Scheme)
	for _, c := range p.Changes {
		fmt.Fprintln(w, "  "+c)
	}
	for _, r := range p.Refusals {
		fmt.Fprintf(w, "\n%s: %s.\n  Fix: %s.\n", r.Reason, r.Message, r.Fix)
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if len(p.Steps) > 0 {
		fmt.Fprintln(tw, "\nPUSH\tTAG\tFROM\tTO\tWHY")
	}
	for _, s := range p.Steps {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", s.Verb, orDash(s.Tag), orDash(digest(s.From)), digest(s.To), s.Why)
	}
	_ = tw.Flush()
	if len(p.MustNot) > 0 {
		fmt.Fprintln(tw, "\nMUST NOT MOVE\tSTAYS AT\tWHY")
	}
	for _, l := range p.MustNot {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", l.Tag, orDash(digest(l.Digest)), l.Why)
	}
	_ = tw.Flush()
	if len(p.ReachableBy) > 0 {
		fmt.Fprintf(w, "\nthe previous image, %s, stays reachable by %s\n", digest(p.Before), strings.Join(p.ReachableBy, ", "))
	}
	for _, s := range p.Warnings {
		fmt.Fprintln(w, "\nwarning: "+s)
	}
	if p.Instead != nil {
		fmt.Fprintln(w, "\nthe right plan:")
		printPlan(w, *p.Instead, wide)
	}
}

func headline(p publish.Plan) string {
	switch {
	case p.Refused():
		return fmt.Sprintf("refused: case %s, %s", p.Case, p.Class)
	case len(p.Steps) == 0:
		return "nothing to push"
	case p.Automatic:
		return fmt.Sprintf("case %s, %s: may be published without a person", p.Case, p.Class)
	}
	return fmt.Sprintf("case %s, %s: needs a person's decision, because manifests may have to follow", p.Case, p.Class)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
