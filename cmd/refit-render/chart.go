package main

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"

	"github.com/refit-dev/refit/internal/fsutil"
)

// maxValues bounds one file of values in bytes.
const maxValues = 8 << 20

// options are what a chart is rendered with.
type options struct {
	// values are files, sets assignments KEY=VALUE; later ones win, and all sets over all values.
	// CHART: before either limits it to the chart of that name, : does not.
	values, sets []string
	// kubeVersion and apiVersions are what the templates find in the cluster.
	kubeVersion string
	apiVersions []string
}

// renderChart renders a directory, an archive, or for - the archive on standard input: hooks,
// tests, CRDs and the subcharts that the values enable.
func renderChart(path string, stdin io.Reader, o options) ([]manifest, error) {
	c, err := loadChart(path, stdin)
	if err != nil {
		return nil, err
	}
	all, err := render(c, o)
	if err != nil {
		return nil, err
	}
	return append([]manifest{{file: c.Name() + "/"}}, all...), nil
}

func loadChart(path string, stdin io.Reader) (*chart.Chart, error) {
	if path == "-" {
		return loader.LoadArchive(stdin)
	}
	return loader.Load(path)
}

func render(c *chart.Chart, o options) ([]manifest, error) {
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
func manifestsOf(c *chart.Chart, files map[string]string) ([]manifest, error) {
	var out []manifest
	total := 0
	add := func(file string, data []byte) error {
		if total += len(data); total > maxRendered {
			return fmt.Errorf("its manifests have more than %d bytes", maxRendered)
		}
		out = append(out, manifest{file: file, data: data})
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
func capabilities(c *chart.Chart, o options) (*chartutil.Capabilities, error) {
	if c.Metadata.Type == "library" {
		return nil, fmt.Errorf("it is a library, which has no objects of its own. Name the chart that uses it")
	}
	kube, err := chartutil.ParseKubeVersion(o.kubeVersion)
	if err != nil {
		return nil, fmt.Errorf("--chart-kube-version %s: %w", o.kubeVersion, err)
	}
	if want := c.Metadata.KubeVersion; want != "" && !chartutil.IsCompatibleRange(want, kube.String()) {
		return nil, fmt.Errorf("it wants Kubernetes %s, not %s. Name the version of the cluster with --chart-kube-version", want, kube)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *kube
	caps.APIVersions = append(slices.Clone(caps.APIVersions), o.apiVersions...)
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
func chartValues(name string, o options) (map[string]any, error) {
	values := map[string]any{}
	for _, s := range o.values {
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
	for _, s := range o.sets {
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

// forChart returns what an option says for a chart.
func forChart(s, chart string) (string, bool) {
	name, rest, ok := strings.Cut(s, ":")
	return rest, ok && (name == "" || name == chart)
}
