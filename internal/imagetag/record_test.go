package imagetag

import (
	"encoding/json"
	"strings"
	"testing"
)

// A record is read as it was written, and only for its own image.
func TestReleaseRecord(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("a", 64)
	r, err := NewRecord(ReleaseRecord{Repository: "r.example/app", Digest: digest, LongTag: "2.6.2-rev1-b5.2", Severity: "security", Fixes: []string{"CVE-2026-1234", "GHSA-xxxx"}, ManifestsChange: true})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseRecord(text, digest)
	if err != nil || got.LongTag != r.LongTag || len(got.Fixes) != 2 || !got.ManifestsChange {
		t.Errorf("%+v, %v", got, err)
	}
	for want, change := range map[string]func(string) string{
		"another image":         func(s string) string { return strings.Replace(s, "sha256:aa", "sha256:ba", 1) },
		"ReleaseRecord":         func(s string) string { return strings.Replace(s, `"kind":"ReleaseRecord"`, `"kind":"Record"`, 1) },
		"release-record/v1":     func(s string) string { return strings.Replace(s, "record/v1", "record/v2", 1) },
		"severity":              func(s string) string { return strings.Replace(s, `"security"`, `"urgent"`, 1) },
		"no name like":          func(s string) string { return strings.Replace(s, "GHSA-xxxx", "see <b>here</b>", 1) },
		"at most 64":            func(s string) string { return strings.Replace(s, `"GHSA-xxxx"`, `"x"`+strings.Repeat(`,"x"`, 64), 1) },
		"at most 65536":         func(s string) string { return s + strings.Repeat(" ", MaxRecord) },
		"unexpected end":        func(s string) string { return s[:len(s)-1] },
		"cannot unmarshal bool": func(s string) string { return strings.Replace(s, `"CVE-2026-1234"`, "true", 1) },
	} {
		if _, err := ParseRecord([]byte(change(string(text))), digest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := NewRecord(ReleaseRecord{Digest: digest, Severity: "urgent"}); err == nil {
		t.Error("a severity that is not known was written")
	}
}
