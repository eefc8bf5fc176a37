package areas_test

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/areas"
)

func TestParse(t *testing.T) {
	t.Parallel()
	s, err := areas.Parse([]string{"os-images", " boot-images", "os-images", ""})
	if err != nil || s.String() != "boot-images,os-images" || !s.Has(areas.OSImages) || s.Has(areas.ImageTags) || s.Empty() || len(s.Areas()) != 2 {
		t.Errorf("%v, %v", s, err)
	}
	if s, err = areas.Parse(nil); err != nil || !s.Empty() || s.String() != "" {
		t.Errorf("%v, %v", s, err)
	}
	_, err = areas.Parse([]string{"bootimages"})
	if err == nil {
		t.Fatal("an area that does not exist is taken")
	}
	for _, want := range append(areas.Names(), `"bootimages"`) {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// What belongs to several areas goes with the last of them.
func TestShared(t *testing.T) {
	t.Parallel()
	secrets := areas.Rule{Namespace: "refit-builds", Resource: "secrets"}
	for names, want := range map[string]bool{"": false, "boot-images": false, "os-images,image-tags": false, "boot-images,os-images,image-tags": true} {
		s, err := areas.Parse(strings.Split(names, ","))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.OmitsRule(secrets); got != want {
			t.Errorf("without %q: %t", names, got)
		}
		if s.OmitsRule(areas.Rule{Resource: "nodes"}) || s.OmitsKind("Bundle") || s.OmitsResource("nodeupdates/status") {
			t.Errorf("without %q: the core is left out", names)
		}
	}
	s, err := areas.Parse([]string{"os-images"})
	if err != nil || !s.OmitsResource("osbuilds/status") || !s.OmitsKind("OSImage") || s.OmitsKind("ImageTrack") {
		t.Errorf("%v, %v", s, err)
	}
	if a, ok := areas.AreaOfKind("InPlacePlan"); !ok || a.Name != areas.ClusterAPI {
		t.Errorf("%v %t", a, ok)
	}
}
