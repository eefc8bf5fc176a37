package docs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/nodeconfig"
)

// samplesDir has one YAML file for each kind that people write; config/samples_test.go
// applies them to a real API server.
var samplesDir = filepath.Join(root, "config/samples")

// TestShownSamples: an object of refit in a YAML block of a page is a sample, word by
// word, and every sample is shown on a how-to page.
func TestShownSamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(samplesDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]string{} // text to file
	shown := map[string]bool{}
	for _, f := range files {
		samples[strings.TrimSpace(string(readFile(t, f)))] = f
	}
	if len(samples) < 10 {
		t.Fatalf("only %d samples found", len(samples))
	}
	for _, page := range pages(t) {
		blocks, _ := splitPage(t, page)
		for _, b := range blocks {
			text := strings.TrimSpace(strings.Join(b.lines, "\n"))
			if b.lang != "yaml" || !strings.Contains(text, "apiVersion: refit.dev/") {
				continue
			}
			file, ok := samples[text]
			if !ok {
				t.Errorf("%s: the block that begins with %q is no file of config/samples", page, b.lines[0])
				continue
			}
			if strings.Contains(page, "docs/how-to/") {
				shown[file] = true
			}
		}
	}
	for _, f := range files {
		if !shown[f] {
			t.Errorf("%s: no how-to page shows it", f)
		}
	}
}

// TestSamplesAreUnderstood: what the API server cannot check is checked by the code
// that reads it.
func TestSamplesAreUnderstood(t *testing.T) {
	t.Parallel()
	t.Run("NodeConfig", func(t *testing.T) {
		var c v1alpha1.NodeConfig
		decodeSample(t, "nodeconfig", &c)
		source, err := convert.NodeConfigSource(context.Background(), nil, &c)
		if err != nil {
			t.Fatal(err)
		}
		merged, refused := nodeconfig.Merge([]nodeconfig.Source{source})
		if len(refused) > 0 {
			t.Errorf("refused: %v", refused)
		}
		if len(merged.Files) == 0 || len(merged.Units) == 0 {
			t.Errorf("the merged configuration has no files or no units: %+v", merged)
		}
	})
	t.Run("TrustPolicy", func(t *testing.T) {
		var p v1alpha1.TrustPolicy
		decodeSample(t, "trustpolicy", &p)
		var seen []string
		for _, key := range p.Spec.Keys {
			if _, err := bundle.ParsePublicKeyPEM([]byte(key.PublicKey)); err != nil {
				t.Errorf("key %s: %v", key.Name, err)
			}
			if slices.Contains(seen, key.PublicKey) {
				t.Errorf("key %s is there twice", key.Name)
			}
			seen = append(seen, key.PublicKey)
		}
	})
	t.Run("BootImageStream", func(t *testing.T) {
		var s v1alpha1.BootImageStream
		decodeSample(t, "bootimagestream", &s)
		if _, err := bootstream.Parse([]byte(*s.Spec.Inline)); err != nil {
			t.Error(err)
		}
	})
}

func decodeSample(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(readFile(t, filepath.Join(samplesDir, name+".yaml")), into); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
