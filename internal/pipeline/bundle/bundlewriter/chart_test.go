package bundlewriter

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// chartArchive packs files as `helm package` does: pairs of a name and a text.
func chartArchive(t *testing.T, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const chartOfRefit = "apiVersion: v2\nname: refit\nversion: 9.9.9\nappVersion: 1.2.3\n"

// The payload refit-chart is refit's chart, of the release of refit's image in the same bundle.
func TestChartOfABundle(t *testing.T) {
	whole := chartArchive(t, "refit/values.yaml", "image: {}\n", chartFile, chartOfRefit)
	source := func(data string) string {
		return "payload:" + bundle.PayloadRefitChart + "=" + writeFile(t, "refit-1.2.3.tgz", data, 0o600)
	}
	refitImage := func(tag string) string {
		return "oci:" + layoutOf(t, named{"refit.dev/refit:" + tag, image(t, "amd64", gzipLayer(t, 1, 100))})
	}
	_, h := create(t, Options{Sources: []string{source(whole), refitImage("1.2.3")}})
	if p := h.PayloadByName(bundle.PayloadRefitChart, ""); p == nil || p.Version != "1.2.3" || p.Size != int64(len(whole)) {
		t.Errorf("payloads: %+v", h.Metadata.Payloads)
	}
	var warned []string
	create(t, Options{Sources: []string{source(whole)}, Warn: func(s string) { warned = append(warned, s) }})
	if len(warned) != 1 || !strings.Contains(warned[0], "does not have refit's own image") {
		t.Errorf("a chart alone: %q", warned)
	}
	for name, c := range map[string]struct {
		sources []string
		want    string
	}{
		"another release of refit": {[]string{source(whole), refitImage("1.2.4")}, "is of refit 1.2.3, and the bundle has refit.dev/refit:1.2.4"},
		"another chart":            {[]string{source(chartArchive(t, chartFile, "name: other\nappVersion: 1.2.3\n"))}, `is of "other"`},
		"no version":               {[]string{source(chartArchive(t, chartFile, "name: refit\nappVersion: latest\n"))}, `appVersion "latest"`},
		"no YAML":                  {[]string{source(chartArchive(t, chartFile, "name: [refit"))}, chartFile},
		"a chart of another name":  {[]string{source(chartArchive(t, "other/Chart.yaml", chartOfRefit))}, "it has no " + chartFile},
		"a dependency of a chart":  {[]string{source(chartArchive(t, "other/charts/refit/Chart.yaml", chartOfRefit))}, "it has no " + chartFile},
		"half of an archive":       {[]string{source(whole[:len(whole)/2])}, "no packed chart"},
		"no archive":               {[]string{source("refit")}, "no packed chart"},
		"an empty file":            {[]string{source("")}, "no packed chart"},
	} {
		_, err := Create(t.Context(), t.TempDir()+"/b", Options{Version: "1.0.0", Sources: c.sources}, nil)
		var mistake *InputError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), bundle.PayloadRefitChart) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
