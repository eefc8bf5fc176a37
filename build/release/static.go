package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/oci"
)

// static writes what kubectl applies where nodes can pull the image: namespaces, kinds, rights,
// policies, the controller, and the DaemonSet that installs agents.
func (r *release) static([]platform) error {
	objects, err := config.Static(oci.SelfImage.Repository + ":" + r.version)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# refit %s. kubectl apply --server-side -f refit.yaml\n", r.version)
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return os.WriteFile(filepath.Join(r.output, "refit.yaml"), out.Bytes(), 0o644)
}
