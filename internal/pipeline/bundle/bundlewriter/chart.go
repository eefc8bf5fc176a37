package bundlewriter

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Bounds of the archive of refit's chart.
const (
	maxChartFiles = 1000
	maxChartFile  = 64 << 10
)

// chartFile is the first file of a chart, in the directory with the name of the chart.
const chartFile = "refit/Chart.yaml"

// chartVersion is the version of refit that a packed chart installs. Another chart is refused: its
// payload would be taken for refit's.
func chartVersion(r io.ReaderAt, size int64) (string, error) {
	z, err := gzip.NewReader(io.NewSectionReader(r, 0, size))
	if err != nil {
		return "", fmt.Errorf("it is no packed chart: %w", err)
	}
	files := tar.NewReader(z)
	for range maxChartFiles {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("it is no packed chart: %w", err)
		}
		if h.Name == chartFile {
			return readChartVersion(files)
		}
	}
	return "", fmt.Errorf("it has no %s: take refit-VERSION.tgz of the release", chartFile)
}

func readChartVersion(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxChartFile))
	if err != nil {
		return "", fmt.Errorf("%s: %w", chartFile, err)
	}
	var c struct {
		Name       string `json:"name"`
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return "", fmt.Errorf("%s: %w", chartFile, err)
	}
	if c.Name != "refit" || !bundle.ValidVersion(c.AppVersion) {
		return "", fmt.Errorf("%s is of %.60q, appVersion %.60q: take refit-VERSION.tgz of the release", chartFile, c.Name, c.AppVersion)
	}
	return c.AppVersion, nil
}

// checkChart refuses a chart that would start another image than the bundle's: no node would have it.
func checkChart(m *bundle.Metadata, warn func(string)) error {
	version := ""
	for i := range m.Payloads {
		if m.Payloads[i].Name == bundle.PayloadRefitChart {
			version = m.Payloads[i].Version
		}
	}
	if version == "" {
		return nil
	}
	var others []string
	for i := range m.Images {
		if m.Images[i].Group != bundle.GroupRefit {
			continue
		}
		if strings.HasSuffix(m.Images[i].Name, ":"+version) {
			return nil
		}
		others = append(others, m.Images[i].Name)
	}
	if len(others) > 0 {
		return inputf("payload %s is of refit %s, and the bundle has %s: take the chart of the same release", bundle.PayloadRefitChart, version, strings.Join(others, ", "))
	}
	warn("payload " + bundle.PayloadRefitChart + ": the bundle does not have refit's own image, so nodes need it from elsewhere")
	return nil
}
