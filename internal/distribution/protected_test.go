package distribution

import (
	"slices"
	"testing"
)

// Every place of every row is protected, except for the configuration that people write, and
// what people keep below a row's places.
func TestPlacesAreProtected(t *testing.T) {
	t.Parallel()
	for _, r := range Rows() {
		p := r.Places
		for _, at := range slices.Concat([]string{p.DataDir, p.RuntimeRoot, p.Kubeconfig, p.AdminConfig, p.KubeletDir, p.Images, p.StaticPods, p.PKI, p.KubeletPKI, p.CNI}, r.Marks, r.Programs) {
			if at != "" && (Protected(at) == "" || Protected(at+"/x") == "") {
				t.Errorf("%s: %s is not protected", r.Name, at)
			}
		}
		if r.Supervised && Protected(p.Config) != "" {
			t.Errorf("%s: %s", r.Name, Protected(p.Config))
		}
		for _, d := range r.Editable {
			if Protected(d+"/x") != "" || Protected(d) == "" || Protected(d+"-x") == "" {
				t.Errorf("%s: %s", r.Name, d)
			}
		}
		for _, u := range slices.Concat(r.Servers, r.Agents) {
			if !slices.Contains(Units(), u) {
				t.Errorf("%s: no unit %s in %v", r.Name, u, Units())
			}
		}
	}
}
