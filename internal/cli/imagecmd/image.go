package imagecmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/render"
)

// Image that a stream wants.
type Image struct {
	APIVersion   string            `json:"apiVersion"`
	Kind         string            `json:"kind"`
	Stream       string            `json:"stream,omitempty"`
	Release      string            `json:"release,omitempty"`
	OSStream     string            `json:"osStream,omitempty"`
	Architecture string            `json:"architecture"`
	Platform     string            `json:"platform"`
	Region       string            `json:"region,omitempty"`
	Variant      string            `json:"variant,omitempty"`
	Version      string            `json:"version"`
	Attributes   map[string]string `json:"attributes"`
}

func newImage(a *inputs.Access) *cobra.Command {
	var format, stream, file, bundled string
	var key bootstream.Key
	c := &cobra.Command{
		Use: "image --platform P (--stream NAME | --file FILE | --bundle FILE)", Short: "Show the boot image of a stream for manually created machines", Args: cobra.NoArgs,
		Long: `Show the boot image of a stream for a platform: its version, and its location or
name. The stream is a BootImageStream of the cluster, a file (- is standard
input), or a part of a bundle.

Exit codes: 0 found, 2 the stream has no such image; the message lists its images.`,
		Example: "  refit bootimage image --platform metal --variant pxe --bundle site.bundle -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			s, err := streamFrom(cmd.Context(), a, stream, file, bundled, cmd.InOrStdin())
			if err != nil {
				return err
			}
			i, err := s.Find(key)
			if err != nil {
				return console.UsageError(err)
			}
			v := Image{APIVersion: "refit.dev/bootimage/v1", Kind: "BootImage", Stream: s.Name, Release: s.Release, OSStream: i.Key.OSStream, Architecture: i.Key.Architecture, Platform: i.Key.Platform,
				Region: i.Key.Region, Variant: i.Key.Variant, Version: i.Version, Attributes: i.Attributes}
			if format == render.JSON || format == render.YAML {
				return render.Value(a.Out, format, v)
			}
			return v.table(a.Out)
		},
	}
	fl := c.Flags()
	fl.StringVarP(&format, "output", "o", render.Table, "table, wide, json or yaml")
	fl.StringVar(&stream, "stream", "", "a BootImageStream of the cluster")
	fl.StringVar(&file, "file", "", "a file with the stream; - is standard input")
	fl.StringVar(&bundled, "bundle", "", "a bundle with the stream")
	fl.StringVar(&key.Platform, "platform", "", "aws, azure, gcp, vsphere, openstack, nutanix, metal, ...")
	fl.StringVar(&key.Architecture, "architecture", "amd64", "architecture as Kubernetes spells it")
	fl.StringVar(&key.Region, "region", "", "region of a cloud")
	fl.StringVar(&key.Variant, "variant", "", "file format or offer, if there are several")
	fl.StringVar(&key.OSStream, "os-stream", "", "OS stream, if there are several")
	_ = c.MarkFlagRequired("platform")
	c.MarkFlagsOneRequired("stream", "file", "bundle")
	c.MarkFlagsMutuallyExclusive("stream", "file", "bundle")
	return c
}

func (v Image) table(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "version\t%s\n", v.Version)
	if v.Release != "" {
		fmt.Fprintf(tw, "release\t%s\n", v.Release)
	}
	var keys []string
	for k := range v.Attributes {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		fmt.Fprintf(tw, "%s\t%s\n", k, v.Attributes[k])
	}
	return tw.Flush()
}

func streamFrom(ctx context.Context, a *inputs.Access, stream, file, bundled string, in io.Reader) (*bootstream.Stream, error) {
	switch {
	case bundled != "":
		return streamOfBundle(bundled)
	case file == "-":
		return parseFrom(in)
	case file != "":
		f, err := os.Open(file)
		if err != nil {
			return nil, console.UsageError(err)
		}
		defer f.Close()
		return parseFrom(f)
	}
	cl, err := a.Client()
	if err != nil {
		return nil, err
	}
	return streamOfCluster(ctx, cl, stream)
}

func parseFrom(r io.Reader) (*bootstream.Stream, error) {
	data, err := io.ReadAll(io.LimitReader(r, bootstream.Largest+1))
	if err != nil {
		return nil, err
	}
	return bootstream.Parse(data)
}

func streamOfBundle(path string) (*bootstream.Stream, error) {
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := f.Header().PayloadByName(bundle.PayloadBootImages, "")
	if p == nil {
		return nil, console.UsageErrorf("%s has no stream of boot images: add one with refit bundle create boot-images:FILE", path)
	}
	return parseFrom(f.Blob(p.Blob))
}

// streamOfCluster reads the data from the controller's source.
func streamOfCluster(ctx context.Context, cl client.Client, name string) (*bootstream.Stream, error) {
	var o v1alpha1.BootImageStream
	if err := cl.Get(ctx, client.ObjectKey{Name: name}, &o); err != nil {
		return nil, fmt.Errorf("BootImageStream %s: %w", name, err)
	}
	s, err := dataOf(ctx, cl, &o)
	if err != nil {
		return nil, fmt.Errorf("BootImageStream %s: %w", name, err)
	}
	s.Release = o.Status.Release
	return s, nil
}

func dataOf(ctx context.Context, cl client.Client, o *v1alpha1.BootImageStream) (*bootstream.Stream, error) {
	switch {
	case o.Spec.Inline != nil:
		return bootstream.Parse([]byte(*o.Spec.Inline))
	case o.Spec.ConfigMap != nil:
		var m corev1.ConfigMap
		if err := cl.Get(ctx, client.ObjectKey{Namespace: o.Spec.ConfigMap.Namespace, Name: o.Spec.ConfigMap.Name}, &m); err != nil {
			return nil, err
		}
		return bootstream.ParseConfigMap(m.Data, o.Spec.ConfigMap.Key)
	case o.Status.Content == "":
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("its data is not available yet: kubectl describe bootimagestream %s shows why", o.Name))
	}
	var c v1alpha1.Content
	if err := cl.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: o.Status.Content}, &c); err != nil {
		return nil, err
	}
	return bootstream.Parse([]byte(c.Data))
}
