package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// chartDir has the chart, whose templates are generated from config.
const chartDir = "charts/refit"

var chartVersions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// chart packs the chart as `helm package` does, with the version of the release.
func (r *release) chart([]platform) error {
	var files []packed
	err := filepath.WalkDir(chartDir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(chartDir, file)
		if err != nil {
			return err
		}
		f := packed{name: "refit/" + filepath.ToSlash(name), from: file, mode: 0o644}
		if name == "Chart.yaml" {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			f.from, f.text = "", chartVersions.ReplaceAll(text, []byte("${1}: "+r.version))
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return writeFile(filepath.Join(r.output, "refit-"+r.version+".tgz"), func(w io.Writer) error { return tarGzip(w, files, r.date) })
}
