package track

import "github.com/refit-dev/refit/internal/imagetag"

// AddRecord takes in a release record. It is not signed, so it takes rights away only: an image
// does not move by itself if one of its records calls it disruptive, or says that manifests
// change with it. A severity of security counts by its label, which is part of the image.
func (i *Image) AddRecord(r imagetag.ReleaseRecord) {
	i.ManifestsChange = i.ManifestsChange || r.ManifestsChange
	if i.Severity != Disruptive && (r.Severity == Disruptive || r.Severity == Recommended) {
		i.Severity = r.Severity
	}
	for _, f := range r.Fixes {
		if len(i.Fixes) < maxFixes {
			i.Fixes = appendNew(i.Fixes, f)
		}
	}
}

// maxFixes of one image are remembered.
const maxFixes = 32

func appendNew(list []string, s string) []string {
	for _, have := range list {
		if have == s {
			return list
		}
	}
	return append(list, s)
}
