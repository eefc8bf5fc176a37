package imagecmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

// Proposal is a patch for an object that refit does not write.
type Proposal struct {
	Source    string `json:"source"`
	Namespace string `json:"namespace,omitempty"`
	// Object that the patch is for, as Kind/name. If it is a template, it is copied
	// under another name with the patch, and Manager refers to the copy.
	Object  string          `json:"object"`
	Manager string          `json:"manager"`
	Patch   json.RawMessage `json:"patch"`
}

// Proposals of all sources.
type Proposals struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Items      []Proposal `json:"items"`
}

func newDiff(a *inputs.Access) *cobra.Command {
	var from view
	c := &cobra.Command{
		Use: "diff [SOURCE]", Short: "Show patches for boot images that refit does not write", Args: cobra.MaximumNArgs(1),
		Long: `Show the JSON patch to the wanted image for each source that refit does not write.
Commit it to the origin of the object.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := from.site(cmd, a)
			if err != nil {
				return err
			}
			v, err := s.proposals(args)
			if err != nil {
				return err
			}
			return from.show(a, v)
		},
	}
	from.add(c)
	return c
}

// selected returns the source that a command names, all of them without a name.
func (s *site) selected(args []string) (out []*v1alpha1.MachineSource, err error) {
	for i := range s.sources {
		if m := &s.sources[i]; len(args) == 0 || m.Name == args[0] {
			out = append(out, m)
		}
	}
	if len(args) > 0 && len(out) == 0 {
		err = console.UsageErrorf("MachineSource %s not found: refit bootimage status lists all", args[0])
	}
	return out, err
}

func (s *site) proposals(args []string) (Proposals, error) {
	v := Proposals{APIVersion: "refit.dev/bootimageproposals/v1", Kind: "BootImageProposals", Items: []Proposal{}}
	sources, err := s.selected(args)
	if err != nil {
		return v, err
	}
	for _, m := range sources {
		if m.Status.Proposal == "" || m.Spec.Manager == nil {
			continue
		}
		v.Items = append(v.Items, Proposal{Source: m.Name, Namespace: m.Spec.Manager.Namespace, Object: m.Status.ProposalObject,
			Manager: m.Spec.Manager.Kind + "/" + m.Spec.Manager.Name, Patch: json.RawMessage(m.Status.Proposal)})
	}
	return v, nil
}

func (v Proposals) text(w io.Writer) {
	if len(v.Items) == 0 {
		fmt.Fprintln(w, "Nothing to write: every source has the wanted image, or refit writes it itself.")
	}
	for _, p := range v.Items {
		ns := ""
		if p.Namespace != "" {
			ns = " -n " + p.Namespace
		}
		fmt.Fprintf(w, "# %s\n", p.Source)
		if p.Object != p.Manager {
			fmt.Fprintf(w, "# %s is immutable: copy it under another name with this patch, and let %s refer to the copy\n", p.Object, p.Manager)
		}
		fmt.Fprintf(w, "kubectl patch %s%s --type json -p '%s'\n\n", strings.ToLower(p.Object), ns, strings.ReplaceAll(string(p.Patch), "'", `'\''`))
	}
}

// maxDump that is read.
const maxDump = 256 << 20

// fromDump reads the output of kubectl: documents, or lists of objects. It skips
// objects of other kinds.
func fromDump(file string, in io.Reader) (*site, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	s := &site{}
	dec := yaml.NewYAMLOrJSONDecoder(io.LimitReader(in, maxDump), 4096)
	for {
		u := map[string]any{}
		err := dec.Decode(&u)
		if errors.Is(err, io.EOF) {
			s.sort()
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: no YAML or JSON of objects: %w", file, err)
		}
		objects := []map[string]any{u}
		if items, ok := u["items"].([]any); ok {
			objects = nil
			for _, i := range items {
				if m, ok := i.(map[string]any); ok {
					objects = append(objects, m)
				}
			}
		}
		for _, o := range objects {
			if err := s.add(o); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
}

func (s *site) add(content map[string]any) error {
	u := unstructured.Unstructured{Object: content}
	if u.GetAPIVersion() != v1alpha1.GroupVersion.String() {
		return nil
	}
	var err error
	convert := func(into any) { err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, into) }
	switch u.GetKind() {
	case "MachineSource":
		var o v1alpha1.MachineSource
		convert(&o)
		s.sources = append(s.sources, o)
	case "BootImagePolicy":
		var o v1alpha1.BootImagePolicy
		convert(&o)
		s.policies = append(s.policies, o)
	case "BootImageStream":
		var o v1alpha1.BootImageStream
		convert(&o)
		s.streams = append(s.streams, o)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}
