package imagecmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"

	"github.com/refit-dev/refit/internal/pipeline/nodeconfig"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/render"
)

// New returns the command refit image.
func New(a *inputs.Access) *cobra.Command {
	c := &cobra.Command{Use: "image", Short: "Build, check and list OS images"}
	c.AddCommand(newBuild(a), newLint(a), newHistory(a), newFiles(a))
	return c
}

// Built is the result of refit image build.
type Built struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Digest     string `json:"digest"`
	Base       string `json:"base"`
	// Platforms of the image.
	Platforms []string `json:"platforms"`
	// Copied bytes of the base; 0 if its layers could be linked or mounted.
	Copied int64 `json:"copied"`
	// Added bytes: the layer, configurations and manifests.
	Added   int64   `json:"added"`
	Seconds float64 `json:"seconds"`
	// Placed has the place of every file.
	Placed []osimage.PlacedItem `json:"placed"`
}

type buildOptions struct {
	base, output string
	configs      []string
	platforms    []string
}

func newBuild(a *inputs.Access) *cobra.Command {
	var o buildOptions
	c := &cobra.Command{
		Use: "build --base IMAGE --config FILE... --output TARGET", Short: "Append a configuration to a base image, without a builder", Args: console.Args(cobra.NoArgs),
		Long: `Append files, units and kernel arguments of NodeConfigs to a base image, and print
the digest. The command needs no builder and no privileges. The same inputs give the
same digest.

IMAGE is oci:DIR:TAG, oci-archive:FILE:TAG, or docker://REF; TARGET is oci:DIR:TAG or
docker://REPOSITORY[:TAG]. The command links layers of the base between layouts, or
mounts them within a registry, without reading them. To install packages or run
commands, use an OSImage with a Containerfile in a cluster.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format := cmd.Flag("output-format").Value.String()
			if err := console.CheckOutput(format); err != nil {
				return err
			}
			b, err := buildImage(cmd.Context(), &o)
			if err != nil {
				return err
			}
			if console.IsTable(format) {
				for _, i := range b.Placed {
					fmt.Fprintf(a.Err, "%s: %s %s (%s)\n", i.What, i.Where, i.At, i.Rule)
				}
				fmt.Fprintln(a.Out, b.Digest)
				return nil
			}
			return render.Value(a.Out, format, b)
		},
	}
	c.Flags().StringVar(&o.base, "base", "", "the base: oci:DIR:TAG, oci-archive:FILE:TAG or docker://REF")
	c.Flags().StringArrayVar(&o.configs, "config", nil, "file with NodeConfigs; may be given more than once")
	c.Flags().StringVar(&o.output, "output", "", "target of the image: oci:DIR:TAG or docker://REPOSITORY[:TAG]")
	c.Flags().StringSliceVar(&o.platforms, "platform", nil, "platforms of the base to include (default: all)")
	c.Flags().StringP("output-format", "o", render.Table, "table, json or yaml")
	return c
}

func buildImage(ctx context.Context, o *buildOptions) (*Built, error) {
	start := time.Now()
	if o.base == "" || o.output == "" || len(o.configs) == 0 {
		return nil, console.UsageError(errors.New("--base, --config and --output are needed"))
	}
	placed, err := placeConfigs(ctx, o.configs)
	if err != nil {
		return nil, err
	}
	root, done, err := openBase(ctx, o.base)
	if err != nil {
		return nil, err
	}
	defer done()
	hash := osimage.Hash(string(mustJSON(placed.Entries)))
	img, err := imagebuild.Append(ctx, imagebuild.AppendRequest{Base: root, Entries: placed.Entries, Platforms: o.platforms, Labels: map[string]string{"dev.refit.config": hash}})
	if err != nil {
		return nil, err
	}
	b := &Built{APIVersion: "refit.dev/osbuilt/v1", Kind: "OSBuilt", Digest: img.Digest(), Base: root.Name + "@" + root.Desc.Digest.String(), Platforms: img.Platforms, Placed: placed.Items}
	for _, x := range append(append([]registry.Blob(nil), img.Blobs...), img.Manifests...) {
		b.Added += int64(len(x.Data))
	}
	if b.Copied, err = writeImage(ctx, img, o.output); err != nil {
		return nil, err
	}
	b.Seconds = time.Since(start).Seconds()
	return b, nil
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and bytes
	}
	return b
}

// openBase finds the base; done closes what was opened.
func openBase(ctx context.Context, at string) (root oci.Root, done func(), err error) {
	done = func() {}
	kind, rest, _ := strings.Cut(at, ":")
	var roots []oci.Root
	switch kind {
	case "oci":
		dir, tag := splitLayout(rest)
		roots, err = oci.OpenLayout(dir, tag)
	case "oci-archive":
		file, tag := splitLayout(rest)
		var c io.Closer
		if roots, c, err = oci.OpenArchive(file, tag); err == nil {
			done = func() { _ = c.Close() }
		}
	case "docker":
		var r *oci.Registries
		if r, err = oci.NewRegistries(); err == nil {
			root, err = r.Open(ctx, strings.TrimPrefix(rest, "//"))
			return root, done, err
		}
	default:
		return root, done, console.UsageError(fmt.Errorf("--base %s is not known: oci:DIR:TAG, oci-archive:FILE:TAG or docker://REF", at))
	}
	if err != nil {
		return root, done, err
	}
	if len(roots) != 1 {
		return root, done, console.UsageError(fmt.Errorf("%s has %d images: choose one with a tag at the end", at, len(roots)))
	}
	return roots[0], done, nil
}

// splitLayout splits DIR:TAG at the first colon behind the last slash before a tag; a tag may be
// a whole name.
func splitLayout(s string) (dir, tag string) {
	dir, tag, _ = strings.Cut(s, ":")
	return dir, tag
}

func writeImage(ctx context.Context, img *imagebuild.AppendedImage, to string) (int64, error) {
	kind, rest, _ := strings.Cut(to, ":")
	switch kind {
	case "oci":
		dir, tag := splitLayout(rest)
		if tag == "" {
			return 0, console.UsageError(errors.New("--output oci:DIR needs a tag: oci:DIR:TAG"))
		}
		return img.WriteLayout(ctx, dir, tag)
	case "docker":
		name := strings.TrimPrefix(rest, "//")
		return img.Push(ctx, registry.NewWriter(nil, nil), oci.Repository(name), oci.Tag(name))
	}
	return 0, console.UsageError(fmt.Errorf("--output %s is not known: oci:DIR:TAG or docker://REPOSITORY[:TAG]", to))
}

// placeConfigs merges and places the content of the files.
func placeConfigs(ctx context.Context, files []string) (osimage.Placement, error) {
	var configs []*v1alpha1.NodeConfig
	maps := map[string]*convert.ConfigMap{}
	for _, f := range files {
		if err := readConfigs(f, &configs, maps); err != nil {
			return osimage.Placement{}, err
		}
	}
	var sources []nodeconfig.Source
	for _, c := range configs {
		s, err := convert.NodeConfigSource(ctx, func(_ context.Context, name string) (*convert.ConfigMap, error) { return maps[name], nil }, c)
		if err != nil {
			return osimage.Placement{}, err
		}
		sources = append(sources, s)
	}
	merged, vs := nodeconfig.Merge(sources)
	placed, more := osimage.PlaceConfig(merged)
	if vs = append(vs, more...); len(vs) > 0 {
		var says []string
		for _, v := range vs {
			says = append(says, v.Message+"; "+v.Fix)
		}
		return osimage.Placement{}, console.WithExit(console.ExitBlocked, errors.New(strings.Join(says, "\n")))
	}
	if len(placed.Packages) > 0 {
		return osimage.Placement{}, console.WithExit(console.ExitBlocked, fmt.Errorf("packages (%s) need a build that runs commands: use an OSImage with build.image in a cluster", strings.Join(placed.Packages, ", ")))
	}
	return placed, nil
}

// readConfigs reads the NodeConfigs and ConfigMaps of one file.
func readConfigs(file string, configs *[]*v1alpha1.NodeConfig, maps map[string]*convert.ConfigMap) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return console.UsageError(err)
	}
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return console.UsageError(fmt.Errorf("%s: %w", file, err))
		}
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		if err := readDocument(doc, configs, maps); err != nil {
			return console.UsageError(fmt.Errorf("%s, document %d: %w", file, n, err))
		}
	}
}

// readDocument reads one document.
func readDocument(doc []byte, configs *[]*v1alpha1.NodeConfig, maps map[string]*convert.ConfigMap) error {
	var head struct{ Kind string }
	if err := sigsyaml.Unmarshal(doc, &head); err != nil {
		return err
	}
	switch head.Kind {
	case "NodeConfig":
		c := &v1alpha1.NodeConfig{}
		if err := sigsyaml.UnmarshalStrict(doc, c); err != nil {
			return err
		}
		*configs = append(*configs, c)
	case "ConfigMap":
		var m corev1.ConfigMap
		if err := sigsyaml.Unmarshal(doc, &m); err != nil {
			return err
		}
		maps[m.Name] = &convert.ConfigMap{Data: m.Data, BinaryData: m.BinaryData}
	default:
		return fmt.Errorf("kind %q is neither NodeConfig nor ConfigMap; refit config import converts Ignition and MachineConfigs to a NodeConfig", head.Kind)
	}
	return nil
}
