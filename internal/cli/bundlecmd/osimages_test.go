package bundlecmd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
)

// What an OSImage or an OSBuild brings into a bundle: images by digest, under the names
// that nodes fetch them by.
func TestOSImageSources(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	build := func(name, phase string) v1alpha1.OSBuild {
		return v1alpha1.OSBuild{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.OSBuildSpec{Repository: "r.example/os/edge"}, Status: v1alpha1.OSBuildStatus{Phase: phase, Digest: digest}}
	}
	image := func(name string, pools ...v1alpha1.OSImagePool) v1alpha1.OSImage {
		return v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.OSImageStatus{Pools: pools}}
	}
	images := []v1alpha1.OSImage{
		image("edge", v1alpha1.OSImagePool{Name: "a", Image: "m.example/edge@" + digest, Build: "edge-1"}, v1alpha1.OSImagePool{Name: "b", Image: "m.example/edge@" + digest, Build: "edge-1"}),
		image("finished", v1alpha1.OSImagePool{Name: "c", Image: "r.example/os@" + digest}), image("lonely"),
		image("young", v1alpha1.OSImagePool{Name: "d", Message: "build young-1 is building"})}
	builds := []v1alpha1.OSBuild{build("edge-1", v1alpha1.BuildSucceeded), build("edge-2", v1alpha1.BuildFailed), build("site-1", v1alpha1.BuildSucceeded)}
	builds[2].Spec.Output = v1alpha1.OutputNodes
	images = append(images, image("site", v1alpha1.OSImagePool{Name: "e", Image: "refit.invalid/os/site@" + digest, Build: "site-1"}))
	for name, c := range map[string]struct {
		want []string
		says string
	}{
		"edge":     {want: []string{"m.example/edge:edge-1=docker://m.example/edge@" + digest}},
		"edge-1":   {want: []string{"r.example/os/edge:edge-1=docker://r.example/os/edge@" + digest}},
		"finished": {want: []string{"r.example/os:refit-aaaaaaaaaaaa=docker://r.example/os@" + digest}},
		"edge-2":   {says: `its phase is "Failed"`},
		"lonely":   {says: "no pool names OSImage lonely"},
		"young":    {says: "for pool d yet: build young-1 is building"},
		"site":     {says: "the image of OSImage site is in no registry"},
		"site-1":   {says: "--os-image oci:DIR:TAG"},
		"missing":  {says: "neither an OSImage nor an OSBuild missing"},
	} {
		got, err := imageSources(name, images, builds)
		if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %s %v", name, diff, err)
		}
	}
}

func TestSource(t *testing.T) {
	for name, want := range map[string]string{"edge": "os-image:edge", "oci:built:os.example/edge:1": "oci:built:os.example/edge:1", "oci-archive:a.tar:1": "oci-archive:a.tar:1", "docker://r.example/os:1": "docker://r.example/os:1"} {
		if got := osImageSource(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
