package inputs

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/refit-dev/refit/internal/cli/console"
)

// ChartOptions are what a chart is rendered with.
type ChartOptions struct {
	// Values are files, Sets assignments KEY=VALUE; later ones win, and all Sets over all Values.
	// CHART: before either limits it to the chart of that name.
	Values, Sets []string
	// KubeVersion and APIVersions are what the templates find in the cluster.
	KubeVersion string
	APIVersions []string
}

// Chart renders a chart as `helm template` does, without a cluster: hooks, tests, CRDs and the
// subcharts that the values enable. ref is a directory, an archive, oci://REF or
// https://REPOSITORY/NAME:VERSION. It returns the name of the chart too.
func Chart(ctx context.Context, ref string, o ChartOptions) ([]Manifest, string, error) {
	all, name, err := chart(ctx, ref, o)
	if err != nil {
		return nil, "", fmt.Errorf("chart %s: %w", ref, err)
	}
	return all, name, nil
}

func chart(ctx context.Context, ref string, o ChartOptions) ([]Manifest, string, error) {
	scheme, _, remote := strings.Cut(ref, "://")
	if !remote {
		if _, err := os.Stat(ref); err != nil {
			return nil, "", console.UsageErrorf("%w. Name a directory, an archive, oci://HOST/PATH:VERSION or https://HOST/PATH/NAME:VERSION", err)
		}
		return render(ctx, nil, append([]string{"chart", ref}, o.args()...)...)
	}
	archive, err := fetchChart(ctx, scheme, ref)
	if err != nil {
		return nil, "", err
	}
	return render(ctx, archive, append([]string{"chart", "-"}, o.args()...)...)
}

// args are the arguments for the renderer, which wants a colon in each that may name a chart.
func (o ChartOptions) args() []string {
	var out []string
	add := func(flag string, values []string) {
		for _, v := range values {
			name, rest := ChartOf(v)
			out = append(out, flag+"="+name+":"+rest)
		}
	}
	add("--values", o.Values)
	add("--set", o.Sets)
	if o.KubeVersion != "" {
		out = append(out, "--kube-version="+o.KubeVersion)
	}
	for _, v := range o.APIVersions {
		out = append(out, "--api-version="+v)
	}
	return out
}

// ChartOf splits CHART:REST; without a chart REST is for all.
func ChartOf(s string) (name, rest string) {
	name, rest, ok := strings.Cut(s, ":")
	if !ok || name == "" || rest == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", s
	}
	return name, rest
}

// Kustomize builds a kustomization as `kustomize build` does. Nothing is fetched or run: an
// entry that is not a local path, a plugin and a chart are refused.
func Kustomize(ctx context.Context, dir string) (Manifest, error) {
	all, _, err := render(ctx, nil, "kustomization", dir)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%s wrote %d manifests, not one", renderer, len(all))
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("kustomization %s: %w", dir, err)
	}
	all[0].File = dir
	return all[0], nil
}
