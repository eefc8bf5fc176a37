package bundlewriter

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func sumOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// streamOf names files by what is in them.
func streamOf(files map[string]string) string {
	var images []string
	for platform, content := range files {
		images = append(images, fmt.Sprintf(`{"architecture":"amd64","platform":%q,"variant":"ova","version":"9.6.20251023-0","attributes":{"location":"https://example.test/x","sha256":%q}}`, platform, sumOf(content)))
	}
	return `{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[` + strings.Join(images, ",") + `]}`
}

// Spec 5, point 10: the stream and the images that it names travel in the bundle;
// a file is identified by its checksum, not by its name.
func TestBootImagesAreASource(t *testing.T) {
	stream := writeFile(t, "stream.json", streamOf(map[string]string{"vsphere": "a disk", "nutanix": "another"}), 0o600)
	disk := writeFile(t, "renamed.OVA", "a disk", 0o755)
	path, h := create(t, Options{Sources: []string{"boot-image:" + disk, "boot-images:" + stream}})
	got := map[string]string{}
	for _, p := range h.Metadata.Payloads {
		got[p.Name] = fmt.Sprint(p.Platform, p.Version, p.Size, p.Mode)
	}
	if len(got) != 2 || got["boot-image.vsphere.amd64.ova"] != fmt.Sprint("", "", 6, 0o644) || got[bundle.PayloadBootImages] == "" {
		t.Fatal(got)
	}
	// The files of a bundle are taken over with its stream, and more is added.
	_, h = create(t, Options{Version: "2.0.0", Sources: []string{"bundle:" + path, "boot-image:" + writeFile(t, "n", "another", 0o600)}})
	if len(h.Metadata.Payloads) != 3 || h.PayloadByName("boot-image.nutanix.amd64.ova", "") == nil {
		t.Errorf("%+v", h.Metadata.Payloads)
	}

	for name, tc := range map[string]struct {
		sources []string
		want    string
	}{
		"a file without a stream":    {[]string{"boot-image:" + disk}, "add boot-images:FILE"},
		"a file of another release":  {[]string{"boot-images:" + stream, "boot-image:" + writeFile(t, "x", "half of it", 0o600)}, "no file of the stream has its SHA-256 " + sumOf("half of it")},
		"a file that is not there":   {[]string{"boot-images:" + stream, "boot-image:" + filepath.Join(t.TempDir(), "none")}, "no such file"},
		"a stream that is none":      {[]string{"boot-images:" + disk}, "no JSON object"},
		"a stream that is not there": {[]string{"boot-images:" + filepath.Join(t.TempDir(), "none")}, "no such file"},
		"another stream than before": {[]string{"bundle:" + path, "boot-images:" + writeFile(t, "s.json", streamOf(map[string]string{"vsphere": "new"}), 0o600)}, "given twice with other bytes"},
		"a stream without images":    {[]string{"boot-images:" + writeFile(t, "e.json", `{"apiVersion":"refit.dev/boot-images/v1","images":[]}`, 0o600)}, "holds no image"},
	} {
		_, err := Create(t.Context(), filepath.Join(t.TempDir(), "b"), Options{Sources: tc.sources, Version: "1.0.0"}, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
