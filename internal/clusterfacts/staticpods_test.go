package clusterfacts

import "testing"

func TestTag(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/kube-apiserver:v1.36.3":                   "v1.36.3",
		"registry.k8s.io/kube-apiserver:v1.36.3@sha256:0123456789": "v1.36.3",
		"10.0.0.1:5000/kube-apiserver":                             "",
		"10.0.0.1:5000/kube-apiserver:v1.36.3":                     "v1.36.3",
	} {
		if got := tag(image); got != want {
			t.Errorf("tag of %s: %q, want %q", image, got, want)
		}
	}
}

func TestAVersionWithABuildIsFoundInATag(t *testing.T) {
	t.Parallel()
	if got := versionOf("v1.35.4_vendor.1"); got != "v1.35.4+vendor.1" {
		t.Errorf("read as %s", got)
	}
}
