package bootstream_test

import "testing"

// A vendor's image of another version is stock. An image that might be newer, or is private,
// is not.
func TestStock(t *testing.T) {
	t.Parallel()
	s := parse(t, coreos(t))
	for name, tc := range map[string]struct {
		platform   string
		attributes map[string]string
		want       string
	}{
		"Google, legacy":                  {"gcp", map[string]string{"selfLink": "projects/rhcos-cloud/global/images/rhcos-418-94-202501221327-0-gcp-x86-64"}, "418-94-202501221327-0"},
		"Google, by its whole address":    {"gcp", map[string]string{"selfLink": "https://www.googleapis.com/compute/v1/projects/rhcos-cloud/global/images/rhcos-9-4-20250101-0-gcp-x86-64"}, "9-4-20250101-0"},
		"Google, of a private project":    {"gcp", map[string]string{"selfLink": "projects/mine/global/images/rhcos-418-94-202501221327-0-gcp-x86-64"}, ""},
		"Google, of no known name":        {"gcp", map[string]string{"selfLink": "projects/rhcos-cloud/global/images/golden-7"}, ""},
		"Google, without a version":       {"gcp", map[string]string{"selfLink": "projects/rhcos-cloud/global/images/rhcos-latest-gcp-x86-64"}, ""},
		"Google, a family":                {"gcp", map[string]string{"selfLink": "projects/rhcos-cloud/global/images/family/rhcos"}, ""},
		"Azure, an older one":             {"azure", map[string]string{"publisher": "azureopenshift", "offer": "aro4", "sku": "418-v2", "version": "418.94.20250122"}, "418.94.20250122"},
		"Azure, another product":          {"azure", map[string]string{"publisher": "redhat", "offer": "rh-ocp-worker", "sku": "x", "version": "418.94.20250122"}, ""},
		"Azure, version latest":           {"azure", map[string]string{"publisher": "azureopenshift", "offer": "aro4", "sku": "418-v2", "version": "latest"}, ""},
		"Azure, an image of an installer": {"azure", map[string]string{}, ""},
		"a platform that does not say it": {"aws", map[string]string{"image": "ami-0zzz"}, ""},
	} {
		got, ok := s.RecogniseStock(tc.platform, tc.attributes)
		if got != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q %v, want %q", name, got, ok, tc.want)
		}
	}
}
