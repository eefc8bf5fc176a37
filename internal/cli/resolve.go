package cli

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// resolveBundle resolves an argument to a bundle's digest: a digest, a bundle file or medium,
// or the name or version of a Bundle object.
func resolveBundle(ctx context.Context, c client.Client, arg string) (string, error) {
	if digestForm.MatchString(arg) {
		return arg, nil
	}
	if isFile(arg) {
		h, err := bundleHeader(arg)
		if err != nil {
			return "", err
		}
		return h.Digest, nil
	}
	var list v1alpha1.BundleList
	if err := c.List(ctx, &list); err != nil {
		return "", inputs.ListError(err)
	}
	return pickBundle(list.Items, arg)
}

// isFile reports whether an argument means a file, a medium or a directory here. The name of a
// Bundle has no slash: a directory with one is meant as a path.
func isFile(arg string) bool {
	disk, _ := bundlereader.SplitPath(arg)
	st, err := os.Stat(disk)
	return err == nil && (!st.IsDir() || strings.Contains(arg, "/"))
}

func pickBundle(bundles []v1alpha1.Bundle, arg string) (string, error) {
	var found, known []string
	for _, b := range bundles {
		d := b.Status.Digest
		if d == "" {
			d = b.Spec.Digest
		}
		known = append(known, b.Name+" ("+b.Status.Version+")")
		if d != "" && (b.Name == arg || b.Status.Version == arg || b.Status.KubernetesVersion == arg) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", console.UsageError(fmt.Errorf("%q is neither a file, a digest, nor the name or version of a Bundle; known: %s", arg, orNothing(known)))
	}
	return "", console.UsageError(fmt.Errorf("%q matches %d bundles: name one by its digest: %s", arg, len(found), strings.Join(found, ", ")))
}

func orNothing(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

// bundleHeader reads the header of a bundle file or medium.
func bundleHeader(path string) (*bundle.Header, error) {
	h, _, err := bundlereader.SummaryPath(path)
	if err != nil {
		return nil, inputs.BundleError(err)
	}
	return h, nil
}
