package tagscmd

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/publish"
)

// recordFlags are what `refit tags plan` writes about an image in addition to its tags.
type recordFlags struct {
	file, severity string
	fixes          []string
}

func (f *recordFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "record", "", "file that gets the release record of the image, to attach to it")
	c.Flags().StringVar(&f.severity, "severity", "", "severity in the release record: security, recommended or disruptive")
	c.Flags().StringSliceVar(&f.fixes, "fixes", nil, "vulnerabilities in the release record that the image closes, for example CVE-2026-1234")
}

func (f *recordFlags) check() error {
	if f.file == "" && (f.severity != "" || len(f.fixes) > 0) {
		return console.UsageErrorf("--severity and --fixes are for the release record: use --record FILE too")
	}
	return nil
}

// write writes the record of an image that may be published. w gets the command that attaches
// it; nil for none.
func (f *recordFlags) write(w io.Writer, p publish.Plan, e publish.Event) error {
	if f.file == "" || p.Refused() {
		return nil
	}
	r, err := imagetag.NewRecord(imagetag.ReleaseRecord{Repository: p.Repository, Digest: p.Image, LongTag: p.Long, Version: e.Image.Version, From: p.Before, Case: string(p.Case),
		Severity: f.severity, Fixes: f.fixes, ManifestsChange: !p.Automatic})
	if err != nil {
		return console.UsageErrorf("release record: %v", err)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := fsutil.WriteFile(f.file, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the release record: %w", err)
	}
	if w != nil {
		fmt.Fprintf(w, "\nthe release record is in %s; attach it before the tags move:\n  oras attach --artifact-type %s %s@%s %s:%s\n", f.file, imagetag.RecordType, p.Repository, p.Image, f.file, imagetag.RecordType)
	}
	return nil
}
