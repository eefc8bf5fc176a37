package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/agent/host/kube"
)

// undetectedError says that no distribution was found.
type undetectedError struct{ error }

// detectCommand prints the distribution of a machine. It runs without an installed agent.
func detectCommand() *cobra.Command {
	var root, output string
	var versions bool
	c := &cobra.Command{
		Use: "detect [--root DIR]", Short: "Print the Kubernetes distribution of this machine, and where it keeps what", Args: cobra.NoArgs,
		Long: `Print the Kubernetes distribution of this machine: kubeadm, k3s, rke2, k0s or
eks-hybrid; its paths, and where they differ from the defaults of the distribution.

The command reads names of files, units, and the configuration of the distribution. It
writes nothing, opens no connection and needs no installed agent. It prints no argument
of a unit except paths, since one may be a token. With --versions it runs the program
of the distribution for its version, without environment, for at most 10 seconds.

The exit code is 0 if the distribution was found. It is 3 if there is none, or if the
machine has files of several.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := detectionWriters[output]
			if !ok {
				return usageError{fmt.Errorf("-o %s: use json or yaml", output)}
			}
			if versions && root != "/" {
				return usageError{fmt.Errorf("--versions runs programs of this machine; leave out --root %s", root)}
			}
			d, undetected := kube.Detect(root)
			if versions {
				d.AskVersion(cmd.Context())
			}
			if err := write(cmd.OutOrStdout(), d); err != nil {
				return err
			}
			if undetected != nil {
				return undetectedError{undetected}
			}
			return nil
		},
	}
	c.Flags().StringVar(&root, "root", "/", "check the machine with this root directory")
	c.Flags().StringVarP(&output, "output", "o", "", "output format: json or yaml")
	c.Flags().BoolVar(&versions, "versions", false, "run the program of the distribution for its version")
	return c
}

// detectionWriters are the output formats.
var detectionWriters = map[string]func(io.Writer, *kube.Detection) error{"": writeDetection, "json": writeDetectionJSON, "yaml": writeDetectionYAML}

func writeDetectionYAML(w io.Writer, d *kube.Detection) error {
	b, err := yaml.Marshal(d)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func writeDetectionJSON(w io.Writer, d *kube.Detection) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

// writeDetection prints a detection for people.
func writeDetection(w io.Writer, d *kube.Detection) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	list := func(name string, values ...string) {
		for _, v := range values {
			if v != "" {
				fmt.Fprintf(t, "%s\t%s\n", name, v)
			}
			name = ""
		}
	}
	list("distribution", strings.TrimSpace(d.Distribution+" "+d.Role))
	list("seen", d.Seen...)
	list("unit", d.Unit)
	list("program", d.Program)
	list("version", d.Version)
	if d.VersionProblem != "" {
		list("version", "unknown: "+d.VersionProblem)
	}
	list("not readable", d.Unreadable...)
	if len(d.Unreadable) > 0 {
		list("", "run the command as root to read them")
	}
	if err := t.Flush(); err != nil || len(d.Places) == 0 {
		return err
	}
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nPLACE\tPATH\tSTATE\n")
	for _, p := range d.Places {
		fmt.Fprintf(t, "%s\t%s\t%s\n", p.What, p.Path, map[bool]string{true: "exists", false: "missing"}[p.Exists])
	}
	fmt.Fprintln(t)
	if err := t.Flush(); err != nil {
		return err
	}
	return writeDifferences(w, d)
}

func writeDifferences(w io.Writer, d *kube.Detection) error {
	var b strings.Builder
	if len(d.Differences) == 0 {
		fmt.Fprintf(&b, "No difference from the defaults of %s.\n", d.Title)
	} else {
		fmt.Fprintf(&b, "Differences from the defaults of %s:\n", d.Title)
	}
	for _, x := range d.Differences {
		fmt.Fprintf(&b, "  %s: %s, by default %s\n", x.What, x.Here, x.Default)
	}
	fmt.Fprintf(&b, "\nOn such nodes %s.\nAn update may change: %s.\n", d.Does, strings.Join(d.Touches, ", "))
	_, err := io.WriteString(w, b.String())
	return err
}
