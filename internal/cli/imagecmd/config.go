package imagecmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/ignition"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

// NewConfig returns the command.
func NewConfig(a *inputs.Access) *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Import node configuration of other tools"}
	c.AddCommand(newImport(a))
	return c
}

func newImport(a *inputs.Access) *cobra.Command {
	var name string
	var pools []string
	var partial bool
	c := &cobra.Command{
		Use: "import FILE", Short: "Convert Ignition 3 or a MachineConfig to a NodeConfig", Args: console.Args(cobra.ExactArgs(1)),
		Long: `Convert Ignition version 3 (JSON) or a MachineConfig (YAML or JSON; - is standard
input) to a NodeConfig on standard output. The command applies nothing.

It cannot convert secrets, disks, remote files and users: standard error names each
such part with the reason, and the exit code is 3. With --partial it writes the rest
anyway.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readInput(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			imported, err := ignition.Import(data)
			if err != nil {
				return console.UsageError(fmt.Errorf("%s: %w", args[0], err))
			}
			out, err := yaml.Marshal(toManifest(imported, name, pools))
			if err != nil {
				return err
			}
			for _, l := range imported.NotImported {
				fmt.Fprintf(a.Err, "not converted: %s: %s\n", l.Path, l.Why)
			}
			if len(imported.NotImported) > 0 && !partial {
				return console.WithExit(console.ExitBlocked, fmt.Errorf("%s of %s not converted; --partial writes the rest", text.Count(len(imported.NotImported), "part"), args[0]))
			}
			_, err = a.Out.Write(out)
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the NodeConfig (default: the MachineConfig's, else imported)")
	c.Flags().StringSliceVar(&pools, "pool", nil, "pools that it applies to (default: the MachineConfig's role)")
	c.Flags().BoolVar(&partial, "partial", false, "write the NodeConfig although some parts cannot be converted")
	return c
}

func readInput(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, console.UsageError(err)
	}
	return data, err
}

// manifest is the NodeConfig without status and times.
type manifest struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec v1alpha1.NodeConfigSpec `json:"spec"`
}

func toManifest(c ignition.Imported, name string, pools []string) manifest {
	var f manifest
	f.APIVersion, f.Kind = v1alpha1.GroupVersion.String(), "NodeConfig"
	f.Metadata.Name = name
	if name == "" {
		f.Metadata.Name = c.Name
	}
	if f.Metadata.Name == "" {
		f.Metadata.Name = "imported"
	}
	f.Spec.Pools = pools
	if len(pools) == 0 && c.Role != "" {
		f.Spec.Pools = []string{c.Role}
	}
	for _, x := range c.Files {
		f.Spec.Files = append(f.Spec.Files, toNodeFile(x))
	}
	for _, u := range c.Units {
		n := v1alpha1.NodeUnit{Name: u.Name, State: u.State, Contents: u.Contents}
		for _, d := range u.Dropins {
			n.Dropins = append(n.Dropins, v1alpha1.UnitDropin{Name: d.Name, Contents: d.Contents})
		}
		f.Spec.Units = append(f.Spec.Units, n)
	}
	for _, a := range c.KernelArguments {
		f.Spec.KernelArguments = append(f.Spec.KernelArguments, v1alpha1.KernelArgument(a))
	}
	for user, keys := range c.SSHKeys {
		f.Spec.SSHAuthorizedKeys = append(f.Spec.SSHAuthorizedKeys, v1alpha1.UserKeys{User: user, Keys: keys})
	}
	sort.Slice(f.Spec.SSHAuthorizedKeys, func(i, j int) bool { return f.Spec.SSHAuthorizedKeys[i].User < f.Spec.SSHAuthorizedKeys[j].User })
	for _, p := range c.Packages {
		f.Spec.Packages = append(f.Spec.Packages, v1alpha1.PackageName(p))
	}
	return f
}

func toNodeFile(x model.ConfigFile) v1alpha1.NodeFile {
	mode := int32(x.Mode)
	n := v1alpha1.NodeFile{Path: x.Path, Mode: &mode, Owner: x.Owner, Group: x.Group}
	text := string(x.Data)
	if strings.ToValidUTF8(text, "") == text && !strings.ContainsRune(text, 0) {
		n.Contents = &v1alpha1.FileContents{Inline: &text}
	} else {
		n.Contents = &v1alpha1.FileContents{Base64: x.Data}
	}
	return n
}
