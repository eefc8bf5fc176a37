package bundlecmd

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/refit-dev/refit/internal/text"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/render"
)

// diffView is what `refit bundle diff -o json` prints.
type diffView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	From       string `json:"from"`
	To         string `json:"to"`
	bundle.Difference
	// Summary of the images in one sentence, and Images by class.
	Summary string        `json:"summary"`
	Images  track.Summary `json:"images"`
}

func newDiff() *cobra.Command {
	c := &cobra.Command{
		Use: "diff A B", Short: "Compare two bundles, and classify each changed image",
		Long: `Compare bundle A with bundle B: names, bytes, and the class of every changed image (rebuild, fixed definition,
new version, older) by its tags under a scheme. The command reads headers, and from B the manifests and configurations of
changed images, for the label ` + track.SecurityLabel + `=security.`,
		Example: "  refit bundle diff site-1.bundle site-2.bundle",
		Args:    console.Args(cobra.ExactArgs(2)),
	}
	format := console.OutputFlag(c)
	scheme := c.Flags().String("scheme", "rev", "tag scheme of the images (refit tags compare --help)")
	c.RunE = func(c *cobra.Command, a []string) error {
		if err := console.CheckOutput(*format); err != nil {
			return err
		}
		s, err := imagetag.ByName(*scheme)
		if err != nil {
			return console.UsageError(err)
		}
		var f [2]*bundlereader.File
		for i := range f {
			if f[i], err = openBundle(a[i]); err != nil {
				return err
			}
			defer f[i].Close()
		}
		x, y := f[0].Header(), f[1].Header()
		v := diffView{APIVersion: "refit.dev/bundlediff/v1", Kind: "BundleDiff", From: x.Digest, To: y.Digest, Difference: bundle.Diff(x.Metadata, y.Metadata)}
		v.Images = track.Compare(s, named(x), named(y), func(digest string) bool { return hasSecurityLabel(f[1], digest) })
		v.Summary = v.Images.Sentence()
		if !console.IsTable(*format) {
			return render.Value(c.OutOrStdout(), *format, v)
		}
		return v.table(c, *format == render.Wide)
	}
	return c
}

func named(h *bundle.Header) []track.Named {
	out := make([]track.Named, 0, len(h.Metadata.Images))
	for _, i := range h.Metadata.Images {
		out = append(out, track.Named{Name: i.Name, Digest: i.Digest})
	}
	return out
}

// table shows the differences; wide shows equal parts too.
func (v diffView) table(c *cobra.Command, wide bool) error {
	class := map[string]track.Class{}
	for _, i := range v.Images.Changed {
		class[i.ToDigest], class[i.FromDigest] = i.Class, i.Class
	}
	tw := tabwriter.NewWriter(c.OutOrStdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "CHANGE\tKIND\tNAME\tFROM\tTO\tCLASS")
	for _, ch := range v.Changes {
		if !wide && ch.Change == bundle.ChangeSame {
			continue
		}
		of := class[ch.To]
		if ch.To == "" {
			of = class[ch.From]
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", ch.Change, ch.Kind, ch.Name, orDash(text.ShortDigest(ch.From)), orDash(text.ShortDigest(ch.To)), orDash(string(of)))
	}
	fmt.Fprintf(tw, "\nimages: %s\nshared %s, new %s, gone %s\n", v.Summary, explain.Bytes(v.SharedBytes), explain.Bytes(v.AddedBytes), explain.Bytes(v.RemovedBytes))
	return tw.Flush()
}

// maxManifest is the largest manifest or configuration that is read, in bytes.
const maxManifest = 4 << 20

// hasSecurityLabel reports whether an image of a bundle has the label of a security
// fix: in its index, a platform's manifest or its configuration.
func hasSecurityLabel(f *bundlereader.File, digest string) bool {
	m := f.Header().Metadata
	todo, seen := []string{digest}, map[string]bool{}
	for len(todo) > 0 {
		d := todo[0]
		todo = todo[1:]
		for i := range m.Blobs {
			if m.Blobs[i].Digest != d || seen[d] || m.Blobs[i].Size > maxManifest {
				continue
			}
			seen[d] = true
			says, children := readLabels(f.Blob(i))
			if says {
				return true
			}
			todo = append(todo, children...)
		}
	}
	return false
}

// readLabels reads the labels of an index, a manifest or a configuration, and of its
// children. Another or a damaged blob has none.
func readLabels(r io.Reader) (says bool, children []string) {
	var doc struct {
		Annotations map[string]string `json:"annotations"`
		Manifests   []struct {
			Digest string `json:"digest"`
		} `json:"manifests"`
		Config json.RawMessage `json:"config"`
	}
	data, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil || json.Unmarshal(data, &doc) != nil {
		return false, nil
	}
	for _, c := range doc.Manifests {
		children = append(children, c.Digest)
	}
	var config struct {
		Digest string            `json:"digest"`
		Labels map[string]string `json:"Labels"`
	}
	if len(doc.Config) > 0 && json.Unmarshal(doc.Config, &config) == nil && config.Digest != "" {
		children = append(children, config.Digest)
	}
	return doc.Annotations[track.SecurityLabel] == "security" || config.Labels[track.SecurityLabel] == "security", children
}
