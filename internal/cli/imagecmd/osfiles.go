package imagecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/render"
)

// OSFiles is where each part of the configuration of a pool's nodes is.
type OSFiles struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Pool       string `json:"pool"`
	// Image of the pool, empty without one.
	Image string `json:"image,omitempty"`
	// Configs are the different configurations of the pool's nodes.
	Configs []OSFilesConfig `json:"configs"`
}

// OSFilesConfig is one configuration and the nodes that have it.
type OSFilesConfig struct {
	// Config is the name of its Content, Nodes are sorted.
	Config string               `json:"config"`
	Nodes  []string             `json:"nodes"`
	Items  []osimage.PlacedItem `json:"items"`
}

func newFiles(a *inputs.Access) *cobra.Command {
	c := &cobra.Command{
		Use: "files POOL", Short: "List where each file of a pool's configuration is", Args: console.Args(cobra.ExactArgs(1)),
		Long: `List where each file, unit and kernel argument of a pool's nodes is: in the image below
/usr, in its /etc, or written by the agent, with the rule. The command reads the desired
configuration of the nodes and what the pool's image was built from. Nodes with different
configurations are listed apart.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			format := cmd.Flag("output").Value.String()
			if err := console.CheckOutput(format); err != nil {
				return err
			}
			cl, err := a.Client()
			if err != nil {
				return err
			}
			v, err := readFiles(cmd.Context(), cl, args[0])
			if err != nil {
				return err
			}
			if !console.IsTable(format) {
				return render.Value(a.Out, format, v)
			}
			return v.table(a.Out)
		},
	}
	console.OutputFlag(c)
	return c
}

func readFiles(ctx context.Context, r client.Reader, pool string) (*OSFiles, error) {
	var images v1alpha1.OSImageList
	if err := r.List(ctx, &images); err != nil {
		return nil, inputs.ListError(err)
	}
	p, err := readPools(ctx, r, pool)
	if err != nil {
		return nil, err
	}
	v := &OSFiles{APIVersion: "refit.dev/osfiles/v1", Kind: "OSFiles", Pool: pool, Configs: []OSFilesConfig{}}
	held, err := v.readImage(ctx, r, p.pool(pool).Spec.OSImage, images.Items)
	if err != nil {
		return nil, err
	}
	byConfig := map[string][]string{}
	for i := range p.updates.Items {
		if u := &p.updates.Items[i]; p.of[u.Name] == pool && u.Spec.Config != "" {
			byConfig[u.Spec.Config] = append(byConfig[u.Spec.Config], u.Name)
		}
	}
	for config, names := range byConfig {
		var c model.NodeConfig
		text, err := readContent(ctx, r, config)
		if err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err != nil {
			return nil, fmt.Errorf("configuration %s of node %s: %w", config, names[0], err)
		}
		slices.Sort(names)
		v.Configs = append(v.Configs, OSFilesConfig{Config: config, Nodes: names, Items: osimage.PlacedOnNode(c, held)})
	}
	slices.SortFunc(v.Configs, func(a, b OSFilesConfig) int { return strings.Compare(a.Nodes[0], b.Nodes[0]) })
	return v, nil
}

// readImage sets the pool's image, and returns the configuration that it was built from.
func (v *OSFiles) readImage(ctx context.Context, r client.Reader, name string, images []v1alpha1.OSImage) (held model.NodeConfig, err error) {
	for i := range images {
		for _, p := range images[i].Status.Pools {
			if images[i].Name != name || p.Name != v.Pool {
				continue
			}
			if v.Image = p.Image; p.Content == "" {
				return held, nil
			}
			text, err := readContent(ctx, r, p.Content)
			if err != nil {
				return held, fmt.Errorf("configuration of image %s: %w", p.Image, err)
			}
			return osimage.OpenConfig(text)
		}
	}
	return held, nil
}

func readContent(ctx context.Context, r client.Reader, name string) ([]byte, error) {
	var c v1alpha1.Content
	err := r.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c)
	return []byte(c.Data), err
}

func (v *OSFiles) table(w io.Writer) error {
	if v.Image != "" {
		fmt.Fprintf(w, "Image: %s\n", v.Image)
	}
	if len(v.Configs) == 0 {
		fmt.Fprintf(w, "The nodes of pool %s have no configuration.\n", v.Pool)
		return nil
	}
	for _, c := range v.Configs {
		fmt.Fprintf(w, "\nNodes: %s\n", strings.Join(c.Nodes, ", "))
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(tw, "WHAT\tWHERE\tRULE")
		for _, i := range c.Items {
			at := i.Rule
			if i.At != "" && i.At != i.What {
				at = i.At + ": " + i.Rule
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\n", i.What, i.Where, at)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}
