package tagscmd

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/publish"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/render"
)

// retainView is what `refit tags retain -o json` prints.
type retainView struct {
	APIVersion        string `json:"apiVersion"`
	Kind              string `json:"kind"`
	publish.Retention `json:",inline"`
}

// retainCall is a call of `refit tags retain`.
type retainCall struct {
	*source
	keep       publish.Keep
	period     string
	until      map[string]string
	bundles    []string
	failIfNoop bool
	output     *string
}

func newRetain(_ *inputs.Access) *cobra.Command {
	r := &retainCall{}
	c := &cobra.Command{
		Use: "retain", Short: "Plan which builds to delete from a repository",
		Long: `Print unused digests, and why all others stay. The command deletes nothing; do not carry
out the plan during a publish. These stay: images of floating tags and their rollback images; first
releases (--first), for the product's life; images of a bundle (--bundle). So do the last builds of
each version (--builds), builds that were replaced recently (--for) or at an unknown time, and every
tag that the scheme cannot parse.`,
		Example: "  refit tags retain --repo registry.example/app --for 180d --first 2.6.0-rev1-b1.1 --bundle edge.refit",
		Args:    console.Args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	r.source, r.output = sourceFlags(c), console.OutputFlag(c)
	f := c.Flags()
	f.StringVar(&r.period, "for", "", "how long a build stays after a newer one replaced it: 180d, 4320h (required)")
	f.IntVar(&r.keep.Builds, "builds", 5, "how many of the newest builds of each version stay, at any age")
	f.StringSliceVar(&r.keep.First, "first", nil, "first releases, by tag or digest: they stay for the product's life")
	f.StringSliceVar(&r.bundles, "bundle", nil, "bundles (or their `refit bundle inspect -o json`) whose images stay")
	f.StringToStringVar(&r.until, "until", nil, "tags or digests that stay until a day: 2.6.2-rev1-b5.1=2027-01-31")
	f.BoolVar(&r.failIfNoop, "fail-if-noop", false, "exit with code 7 if nothing may be deleted")
	return c
}

func (r *retainCall) run(cmd *cobra.Command) error {
	if err := console.CheckOutput(*r.output); err != nil {
		return err
	}
	if err := r.settings(); err != nil {
		return err
	}
	pub, err := r.read(cmd)
	if err != nil {
		return err
	}
	if err := r.describe(cmd.Context(), &pub, slices.Compact(slices.Sorted(maps.Values(pub.Tags)))); err != nil {
		return err
	}
	plan, err := publish.Retain(pub, r.keep, time.Now())
	if err != nil {
		return console.UsageError(err)
	}
	if plan.Delete == nil {
		plan.Delete = []publish.RetainedDigest{}
	}
	if console.IsTable(*r.output) {
		printRetention(cmd.OutOrStdout(), plan, *r.output == render.Wide)
	} else if err := render.Value(cmd.OutOrStdout(), *r.output, retainView{"refit.dev/tagretention/v1", "TagRetention", plan}); err != nil {
		return err
	}
	if len(plan.Delete) == 0 && r.failIfNoop {
		return console.SilentExit(console.ExitNothingToDo)
	}
	return nil
}

// settings reads the flags.
func (r *retainCall) settings() (err error) {
	if r.period == "" {
		return console.UsageErrorf("--for is missing: name how long a replaced build stays, for example --for 180d")
	}
	if r.keep.For, err = parseDays(r.period); err != nil || r.keep.For <= 0 {
		return console.UsageErrorf("--for %s is not a duration: use 180d or 4320h", r.period)
	}
	if r.keep.Builds < 0 {
		return console.UsageErrorf("--builds %d: give 0 or more", r.keep.Builds)
	}
	r.keep.Until = map[string]time.Time{}
	for name, day := range r.until {
		t, err := time.Parse(time.DateOnly, day)
		if err != nil {
			return console.UsageErrorf("--until %s=%s: give a day as 2027-01-31", name, day)
		}
		r.keep.Until[name] = t.AddDate(0, 0, 1) // the whole day
	}
	for _, path := range r.bundles {
		l, err := readListing(path)
		if err != nil {
			return console.UsageError(err)
		}
		r.keep.Listed = append(r.keep.Listed, l)
	}
	return nil
}

// parseDays reads a duration that may be in days.
func parseDays(s string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		d, err := strconv.ParseUint(n, 10, 16)
		return time.Duration(d) * 24 * time.Hour, err
	}
	return time.ParseDuration(s)
}

// readListing reads the digests of a bundle: from the bundle, or from its printed header.
func readListing(path string) (publish.Listing, error) {
	b, err := bundlereader.OpenPath(path)
	if err == nil {
		defer b.Close()
		m := b.Header().Metadata
		l := publish.Listing{By: "bundle " + m.Name + " " + m.Version}
		for _, i := range m.Images {
			l.Digests = append(l.Digests, digestsOf(i.Name, i.Digest)...)
		}
		return l, nil
	}
	raw, readErr := os.ReadFile(path)
	var v struct {
		Kind, Name, Version string
		Images              []struct{ Name, Digest string }
	}
	if readErr != nil || json.Unmarshal(raw, &v) != nil || v.Kind != "Bundle" {
		return publish.Listing{}, fmt.Errorf("--bundle %s: %w", path, err)
	}
	l := publish.Listing{By: "bundle " + v.Name + " " + v.Version}
	for _, i := range v.Images {
		l.Digests = append(l.Digests, digestsOf(i.Name, i.Digest)...)
	}
	return l, nil
}

// digestsOf returns the digest of an image in a bundle and the one in its name: they
// differ if some platforms are left out.
func digestsOf(name, digest string) []string {
	out := []string{digest}
	if ref, err := imagetag.ParseRef(name); err == nil && ref.Digest != "" {
		out = append(out, ref.Digest)
	}
	return out
}

func printRetention(w io.Writer, r publish.Retention, wide bool) {
	digest := text.ShortDigest
	if wide {
		digest = func(s string) string { return s }
	}
	fmt.Fprintf(w, "%s of %s may be deleted, %d stay\n", text.Count(len(r.Delete), "digest"), r.Repository, len(r.Keep))
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, part := range []struct {
		title string
		fates []publish.RetainedDigest
	}{{"MAY BE DELETED", r.Delete}, {"STAYS", r.Keep}} {
		if len(part.fates) > 0 {
			fmt.Fprintf(tw, "\n%s\tTAGS\tWHY\n", part.title)
		}
		for _, f := range part.fates {
			why := f.Why[0]
			if n := len(f.Why) - 1; n > 0 && !wide {
				why += fmt.Sprintf(" (and %d more)", n)
			} else if n > 0 {
				why = strings.Join(f.Why, "; ")
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\n", digest(f.Digest), strings.Join(f.Tags, " "), why)
		}
		_ = tw.Flush()
	}
	for _, s := range r.Warnings {
		fmt.Fprintln(w, "\nwarning: "+s)
	}
}
