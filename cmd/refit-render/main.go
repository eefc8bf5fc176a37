package main

import (
	"archive/tar"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
)

// Exit codes of refit.
const (
	exitInternal = 1
	exitUsage    = 2
)

// manifest is a file with objects.
type manifest struct {
	file string
	data []byte
}

// maxRendered bounds all manifests in bytes.
const maxRendered = 256 << 20

func main() {
	all, err := run(os.Args[1:], os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUsage)
	}
	if err := write(os.Stdout, all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitInternal)
	}
}

// run renders what the arguments name.
func run(args []string, stdin io.Reader) ([]manifest, error) {
	var o options
	f := pflag.NewFlagSet("refit-render", pflag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprintf(os.Stderr, "refit-render renders for refit, which runs it.\n\nUsage:\n  refit-render chart PATH|- [flags]\n  refit-render kustomization DIR\n\nFlags:\n%s", f.FlagUsages())
	}
	f.StringArrayVar(&o.values, "values", nil, "CHART:FILE has values for the chart of that name, :FILE for any; may be repeated, later ones win")
	f.StringArrayVar(&o.sets, "set", nil, "CHART:KEY=VALUE or :KEY=VALUE sets a value, after all files; may be repeated")
	f.StringVar(&o.kubeVersion, "kube-version", "v1.36.0", "Kubernetes version that templates see")
	f.StringArrayVar(&o.apiVersions, "api-version", nil, "further API that templates see; may be repeated")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() != 2 {
		return nil, fmt.Errorf("%d arguments: name chart or kustomization, and its path", f.NArg())
	}
	switch kind, path := f.Arg(0), f.Arg(1); kind {
	case "chart":
		return renderChart(path, stdin, o)
	case "kustomization":
		return renderKustomization(path)
	default:
		return nil, fmt.Errorf("%s cannot be rendered: name chart or kustomization", kind)
	}
}

func write(w io.Writer, all []manifest) error {
	t := tar.NewWriter(w)
	for _, m := range all {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m.file, Size: int64(len(m.data)), Mode: 0o644}
		if m.data == nil {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(m.data); err != nil {
			return err
		}
	}
	return t.Close()
}
