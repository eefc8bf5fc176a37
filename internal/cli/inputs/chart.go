package inputs

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
)

const (
	// defaultKubeVersion is the Kubernetes version that templates see unless one is named.
	defaultKubeVersion = "v1.36.0"
	// renderTimeout ends templates that do not end by themselves.
	renderTimeout = time.Minute
	// maxValues bounds one file of values in bytes.
	maxValues = 8 << 20
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
	c, err := loadChart(ctx, ref)
	if err != nil {
		return nil, "", fmt.Errorf("chart %s: %w", ref, err)
	}
	out, err := renderWithin(ctx, c, o)
	if err != nil {
		return nil, "", console.UsageError(fmt.Errorf("chart %s: %w", ref, err))
	}
	return out, c.Name(), nil
}

func loadChart(ctx context.Context, ref string) (*chart.Chart, error) {
	if scheme, _, remote := strings.Cut(ref, "://"); remote {
		data, err := fetchChart(ctx, scheme, ref)
		if err != nil {
			return nil, err
		}
		return loader.LoadArchive(bytes.NewReader(data))
	}
	if _, err := os.Stat(ref); err != nil {
		return nil, console.UsageErrorf("%w. Name a directory, an archive, oci://HOST/PATH:VERSION or https://HOST/PATH/NAME:VERSION", err)
	}
	return loader.Load(ref)
}

// renderWithin renders in a bounded time. Templates cannot be interrupted: after the time they
// run on until the command ends.
func renderWithin(ctx context.Context, c *chart.Chart, o ChartOptions) (out []Manifest, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, renderTimeout, fmt.Errorf("its templates did not end within %v", renderTimeout))
	defer cancel()
	type result struct {
		out []Manifest
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := render(c, o)
		done <- result{out, err}
	}()
	select {
	case r := <-done:
		return r.out, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func render(c *chart.Chart, o ChartOptions) ([]Manifest, error) {
	caps, err := capabilities(c, o)
	if err != nil {
		return nil, err
	}
	values, err := chartValues(c.Name(), o)
	if err != nil {
		return nil, err
	}
	if err := checkDependencies(c); err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependenciesWithMerge(c, values); err != nil {
		return nil, err
	}
	// The schema of values is not checked: it may be a URL.
	all, err := chartutil.ToRenderValuesWithSchemaValidation(c, values, chartutil.ReleaseOptions{Name: c.Name(), Namespace: "default", Revision: 1, IsInstall: true}, caps, true)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	return manifestsOf(c, files)
}

// manifestsOf are the CRDs of a chart and its rendered files.
func manifestsOf(c *chart.Chart, files map[string]string) ([]Manifest, error) {
	var out []Manifest
	total := 0
	add := func(file string, data []byte) error {
		if total += len(data); total > maxRendered {
			return fmt.Errorf("its manifests have more than %d bytes", maxRendered)
		}
		out = append(out, Manifest{File: file, Data: data, Rendered: true})
		return nil
	}
	for _, crd := range c.CRDObjects() {
		if err := add(crd.Filename, crd.File.Data); err != nil {
			return nil, err
		}
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Base(file) == "NOTES.txt" || strings.TrimSpace(files[file]) == "" {
			continue
		}
		if err := add(file, []byte(files[file])); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// capabilities are what templates see of the cluster.
func capabilities(c *chart.Chart, o ChartOptions) (*chartutil.Capabilities, error) {
	if c.Metadata.Type == "library" {
		return nil, fmt.Errorf("it is a library, which has no objects of its own. Name the chart that uses it")
	}
	version := o.KubeVersion
	if version == "" {
		version = defaultKubeVersion
	}
	kube, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		return nil, fmt.Errorf("--chart-kube-version %s: %w", version, err)
	}
	if want := c.Metadata.KubeVersion; want != "" && !chartutil.IsCompatibleRange(want, kube.String()) {
		return nil, fmt.Errorf("it wants Kubernetes %s, not %s. Name the version of the cluster with --chart-kube-version", want, kube)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *kube
	caps.APIVersions = append(slices.Clone(caps.APIVersions), o.APIVersions...)
	return caps, nil
}

// checkDependencies refuses a chart without one of its subcharts: its images would be missing.
func checkDependencies(c *chart.Chart) error {
	have := map[string]bool{}
	for _, d := range c.Dependencies() {
		have[d.Name()] = true
	}
	var missing []string
	for _, d := range c.Metadata.Dependencies {
		if d != nil && !have[d.Name] {
			missing = append(missing, d.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("subcharts are missing in its directory charts: %s. Run helm dependency build, or use the packaged chart", strings.Join(missing, ", "))
	}
	for _, d := range c.Dependencies() {
		if err := checkDependencies(d); err != nil {
			return fmt.Errorf("subchart %s: %w", d.Name(), err)
		}
	}
	return nil
}

// chartValues merges the values for a chart.
func chartValues(name string, o ChartOptions) (map[string]any, error) {
	values := map[string]any{}
	for _, s := range o.Values {
		file, ok := forChart(s, name)
		if !ok {
			continue
		}
		data, err := fsutil.ReadSmall(file, maxValues)
		if err != nil {
			return nil, fmt.Errorf("--chart-values: %w", err)
		}
		more, err := chartutil.ReadValues(data)
		if err != nil {
			return nil, fmt.Errorf("--chart-values %s: %w", file, err)
		}
		values = chartutil.CoalesceTables(more, values)
	}
	for _, s := range o.Sets {
		set, ok := forChart(s, name)
		if !ok {
			continue
		}
		if err := strvals.ParseInto(set, values); err != nil {
			return nil, fmt.Errorf("--chart-set %s: %w", s, err)
		}
	}
	return values, nil
}

// ChartOf splits CHART:REST; without a chart REST is for all.
func ChartOf(s string) (name, rest string) {
	name, rest, ok := strings.Cut(s, ":")
	if !ok || name == "" || rest == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", s
	}
	return name, rest
}

// forChart returns what an option says for a chart.
func forChart(s, chart string) (string, bool) {
	name, rest := ChartOf(s)
	return rest, name == "" || name == chart
}
