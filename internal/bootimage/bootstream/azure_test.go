package bootstream_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

// The same product, the same generation of hardware, another version.
func TestLike(t *testing.T) {
	t.Parallel()
	var offers []string
	for plan, offer := range map[string][2]string{"no-purchase-plan": {"azureopenshift", "aro4"}, "ocp": {"redhat", "rh-ocp-worker"}, "opp": {"redhat", "rh-opp-worker"}, "ocp-emea": {"redhat-limited", "rh-ocp-worker"}} {
		var generations []string
		for _, g := range []string{"1", "2"} {
			generations = append(generations, fmt.Sprintf(`"hyperVGen%s":{"publisher":%q,"offer":%q,"sku":"s%s","version":"419.6.20250523"}`, g, offer[0], offer[1], g))
		}
		offers = append(offers, fmt.Sprintf(`%q:{%s}`, plan, strings.Join(generations, ",")))
	}
	arm := `"aarch64":{"rhel-coreos-extensions":{"marketplace":{"azure":{"no-purchase-plan":{"hyperVGen2":{"publisher":"azureopenshift","offer":"aro4","sku":"419-arm","version":"419.6.20250523"}}}}}}`
	s := parse(t, []byte(`{"architectures":{"x86_64":{"rhel-coreos-extensions":{"marketplace":{"azure":{`+strings.Join(offers, ",")+`}}}},`+arm+`}}`))
	const gallery = "/resourceGroups/c1-rg/providers/Microsoft.Compute/galleries/gallery_c1/images/c1"
	for name, tc := range map[string]struct {
		arch, publisher, offer, sku, text string
		want                              string
	}{
		"the free offer, first generation":  {"amd64", "azureopenshift", "aro4", "aro_418", "", "no-purchase-plan.hyperVGen1"},
		"the free offer, second generation": {"amd64", "azureopenshift", "aro4", "418-v2", "", "no-purchase-plan.hyperVGen2"},
		"a paid one, second generation":     {"amd64", "redhat", "rh-ocp-worker", "rh-ocp-worker", "", "ocp.hyperVGen2"},
		"a paid one, first generation":      {"amd64", "redhat", "rh-opp-worker", "rh-opp-worker-gen1", "", "opp.hyperVGen1"},
		"a paid one of another publisher":   {"amd64", "redhat-limited", "rh-ocp-worker", "rh-ocp-worker", "", "ocp-emea.hyperVGen2"},
		"uploaded by an installer":          {"amd64", "", "", "", gallery + "/versions/latest", "no-purchase-plan.hyperVGen1"},
		"uploaded, second generation":       {"amd64", "", "", "", gallery + "-gen2/versions/latest", "no-purchase-plan.hyperVGen2"},
		"ARM":                               {"arm64", "azureopenshift", "aro4", "418-arm", "", "no-purchase-plan.hyperVGen2"},
		"a private offer":                   {"amd64", "me", "mine", "x", "", ""},
		"a private image":                   {"amd64", "", "", "", "/subscriptions/x/images/mine", ""},
		"Azure Stack has no galleries":      {"amd64", "", "", "", "/resourceGroups/c1-rg/providers/Microsoft.Compute/images/c1", ""},
		"nothing":                           {"amd64", "", "", "", "", ""},
	} {
		current := map[string]string{"publisher": tc.publisher, "offer": tc.offer, "sku": tc.sku}
		k := s.ChooseOffer(bootstream.Key{Architecture: tc.arch, Platform: "azure"}, current, tc.text)
		if k.Variant != tc.want {
			t.Errorf("%s: %q, want %q", name, k.Variant, tc.want)
		}
	}
	if k := s.ChooseOffer(bootstream.Key{Architecture: "amd64", Platform: "azure", Variant: "mine"}, nil, gallery); k.Variant != "mine" {
		t.Error("a person's choice counts")
	}
	if k := s.ChooseOffer(bootstream.Key{Architecture: "amd64", Platform: "aws"}, nil, gallery); k.Variant != "" {
		t.Error("another platform has no such thing")
	}
}

// Files of an image: its disk, and the parts of a network boot.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := parse(t, coreos(t))
	got := map[string]string{}
	for _, i := range s.Images {
		for _, f := range i.Files() {
			got[f.Name()] = f.Base() + " " + f.SHA256 + " " + f.Uncompressed
		}
	}
	for name, want := range map[string]string{"vsphere.amd64.ova": "vmware.ova ff ", "openstack.amd64.qcow2.gz": "openstack.qcow2.gz dd ee", "metal.amd64.pxe.kernel": "kernel c1 ", "metal.amd64.iso": "live.iso bb "} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if len(got) != 6 {
		t.Errorf("what is in a cloud is no file: %v", got)
	}
	s.SetFilePayload("ee", "boot-image.x")
	s.SetFilePayload("c1", "boot-image.k")
	if f, ok := s.FindFile("dd"); !ok || f.Payload != "boot-image.x" {
		t.Errorf("known by what is in it: %+v", f)
	}
	if f, ok := s.FindFile("c1"); !ok || f.Part != "kernel" || f.Payload != "boot-image.k" {
		t.Errorf("%+v", f)
	}
	if _, ok := s.FindFile(""); ok {
		t.Error("a file without a sum")
	}
}
