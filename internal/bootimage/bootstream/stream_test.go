package bootstream_test

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

func coreos(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/coreos.json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t testing.TB, data []byte) *bootstream.Stream {
	t.Helper()
	s, err := bootstream.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every field that is read, from where it stands.
func TestCoreOSFields(t *testing.T) {
	t.Parallel()
	s := parse(t, coreos(t))
	if s.Name != "rhel-9.6" || s.Modified.Format("2006-01-02") != "2025-10-24" {
		t.Errorf("name %q, modified %v", s.Name, s.Modified)
	}
	got := map[string]string{}
	for _, i := range s.Images {
		var attrs []string
		for k, v := range i.Attributes {
			attrs = append(attrs, k+"="+v)
		}
		sort.Strings(attrs)
		got[i.Key.String()] = i.Version + " " + strings.Join(attrs, " ")
	}
	const rhel = "9.6.20251023-0 "
	want := map[string]string{
		"architecture amd64, platform aws, region eu-central-1":                   rhel + "image=ami-0aaa",
		"architecture amd64, platform aws, region us-east-1":                      rhel + "image=ami-0bbb",
		"architecture arm64, platform aws, region eu-central-1":                   rhel + "image=ami-0ccc",
		"architecture amd64, platform aliyun, region cn-hangzhou":                 rhel + "image=m-1",
		"architecture amd64, platform gcp":                                        rhel + "family=rhcos name=rhcos-9-6-20251023-0-gcp-x86-64 project=rhcos-cloud selfLink=projects/rhcos-cloud/global/images/rhcos-9-6-20251023-0-gcp-x86-64",
		"architecture amd64, platform ibmcloud, region eu-de":                     rhel + "bucket=b object=o url=https://example.test/ibm",
		"architecture amd64, platform powervs, region lon":                        rhel + "bucket=pb object=po url=https://example.test/power",
		"architecture amd64, platform kubevirt":                                   rhel + "digestRef=quay.example/rhcos@sha256:00 image=quay.example/rhcos:9.6",
		"architecture amd64, platform azure, variant disk":                        rhel + "url=https://example.test/azure.vhd",
		"architecture amd64, platform azure, variant no-purchase-plan.hyperVGen1": "419.6.20250523 offer=aro4 publisher=azureopenshift sku=419-v1 type=MarketplaceNoPlan version=419.6.20250523",
		"architecture amd64, platform azure, variant no-purchase-plan.hyperVGen2": "419.6.20250523 offer=aro4 publisher=azureopenshift sku=419-v2 type=MarketplaceNoPlan version=419.6.20250523",
		"architecture amd64, platform metal, variant iso":                         rhel + "location=https://example.test/live.iso sha256=bb signature=https://example.test/live.iso.sig",
		"architecture amd64, platform metal, variant pxe":                         rhel + "initramfs.location=https://example.test/initramfs initramfs.sha256=c2 kernel.location=https://example.test/kernel kernel.sha256=c1 rootfs.location=https://example.test/rootfs rootfs.sha256=c3",
		"architecture amd64, platform openstack, variant qcow2.gz":                rhel + "location=https://example.test/openstack.qcow2.gz sha256=dd uncompressedSha256=ee",
		"architecture amd64, platform vsphere, variant ova":                       rhel + "location=https://example.test/vmware.ova sha256=ff",
	}
	got = clean(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("images (-want +got):", diff)
	}
}

// clean drops attributes that are empty.
func clean(m map[string]string) map[string]string {
	for k, v := range m {
		var parts []string
		for _, p := range strings.Fields(v) {
			if !strings.HasSuffix(p, "=") {
				parts = append(parts, p)
			}
		}
		m[k] = strings.Join(parts, " ")
	}
	return m
}

// What is missing is named, with what there is.
func TestFind(t *testing.T) {
	t.Parallel()
	s := parse(t, coreos(t))
	s.Release = "4.19.3"
	k := func(arch, platform, region, variant string) bootstream.Key {
		return bootstream.Key{Architecture: arch, Platform: platform, Region: region, Variant: variant}
	}
	for name, tc := range map[string]struct {
		key  bootstream.Key
		want string
		err  string
	}{
		"an image of a region":                       {k("amd64", "aws", "us-east-1", ""), "ami-0bbb", ""},
		"the other architecture":                     {k("arm64", "aws", "eu-central-1", ""), "ami-0ccc", ""},
		"a platform without regions, asked with one": {k("amd64", "gcp", "europe-west1", ""), "", ""},
		"one variant needs no name":                  {k("amd64", "vsphere", "", ""), "", ""},
		"a variant by name":                          {k("amd64", "metal", "", "iso"), "", ""},
		"several variants want one":                  {k("amd64", "metal", "", ""), "", "several variants for architecture amd64, platform metal, name one: iso, pxe"},
		"a variant that is not there":                {k("amd64", "metal", "", "raw"), "", "has no variant raw"},
		"a region that is not there":                 {k("amd64", "aws", "eu-west-9", ""), "", "stream rhel-9.6 of release 4.19.3 has no region eu-west-9 (wanted: architecture amd64, platform aws, region eu-west-9); there are: eu-central-1, us-east-1"},
		"no region named":                            {k("amd64", "aws", "", ""), "", "no region is named for architecture amd64, platform aws; there are: eu-central-1, us-east-1"},
		"a platform that is not there":               {k("arm64", "gcp", "", ""), "", "has no platform gcp"},
		"an architecture that is not there":          {k("s390x", "aws", "x", ""), "", "has no architecture s390x"},
		"an OS stream that is not there":             {bootstream.Key{OSStream: "rhel-10", Architecture: "amd64", Platform: "gcp"}, "", "has no OS stream rhel-10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img, err := s.Find(tc.key)
			if (err != nil) != (tc.err != "") || err != nil && (!strings.Contains(err.Error(), tc.err) || !errors.Is(err, bootstream.ErrNone)) {
				t.Fatalf("%v, want %q", err, tc.err)
			}
			if tc.want != "" && img.Attributes["image"] != tc.want {
				t.Errorf("%v, want %s", img, tc.want)
			}
		})
	}
}

func TestRecognise(t *testing.T) {
	t.Parallel()
	s := parse(t, coreos(t))
	link := map[string]string{"selfLink": "projects/rhcos-cloud/global/images/rhcos-9-6-20251023-0-gcp-x86-64"}
	if i, ok := s.Recognise("gcp", link); !ok || i.Version != "9.6.20251023-0" {
		t.Error(i, ok)
	}
	azure := map[string]string{"publisher": "azureopenshift", "offer": "aro4", "sku": "419-v2", "version": "419.6.20250523"}
	if i, ok := s.Recognise("azure", azure); !ok || i.Key.Variant != "no-purchase-plan.hyperVGen2" {
		t.Error(i, ok)
	}
	azure["sku"] = "mine"
	for name, tc := range map[string]struct {
		platform   string
		attributes map[string]string
	}{
		"another sku":               {"azure", azure},
		"an unknown image":          {"aws", map[string]string{"image": "ami-0zzz"}},
		"nothing":                   {"aws", nil},
		"an attribute that is none": {"aws", map[string]string{"family": ""}},
		"of another platform":       {"gcp", map[string]string{"image": "ami-0aaa"}},
	} {
		if i, ok := s.Recognise(tc.platform, tc.attributes); ok {
			t.Errorf("%s is recognised as %v", name, i)
		}
	}
}

func TestOSOfAStream(t *testing.T) {
	t.Parallel()
	image := func(region, version string) bootstream.Image {
		return bootstream.Image{Key: bootstream.Key{Region: region}, Version: version}
	}
	for name, tc := range map[string]struct {
		images []bootstream.Image
		want   string
	}{
		"of one major":                 {[]bootstream.Image{image("a", "9.6.20251023-0"), image("b", "9.4.20250101-0")}, "9.4.20250101-0"},
		"of two":                       {[]bootstream.Image{image("a", "9.6.20251023-0"), image("b", "10.0.20260501-0")}, ""},
		"with one that cannot be read": {[]bootstream.Image{image("a", "9.6.20251023-0"), image("b", "x")}, "9.6.20251023-0"},
		"with none that can":           {[]bootstream.Image{image("b", "x")}, ""},
	} {
		if got := (&bootstream.Stream{Images: tc.images}).OS(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A hand edit must surface.
func TestBadDataIsAnError(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ data, want string }{
		"no JSON":                     {`{`, "no JSON object"},
		"a list":                      {`[]`, "no JSON object"},
		"something else":              {`{"kind":"List"}`, "neither CoreOS stream metadata"},
		"an empty stream":             {`{"architectures":{}}`, "holds no image"},
		"a date that is none":         {`{"metadata":{"last-modified":"yesterday"},"architectures":{}}`, "last-modified"},
		"another version of the list": {`{"apiVersion":"refit.dev/boot-images/v9"}`, "is not known, it must be refit.dev/boot-images/v1"},
		"a word that is not known":    {`{"apiVersion":"refit.dev/boot-images/v1","image":[]}`, `unknown field "image"`},
		"a list without images":       {`{"apiVersion":"refit.dev/boot-images/v1","images":[]}`, "holds no image"},
		"an unknown architecture":     {`{"apiVersion":"refit.dev/boot-images/v1","images":[{"architecture":"z80"}]}`, `images[0]: architecture "z80" is not known`},
		"an image without a version":  {`{"apiVersion":"refit.dev/boot-images/v1","images":[{"architecture":"amd64","platform":"aws","attributes":{"image":"a"}}]}`, "images[0]: platform, version and attributes are needed"},
		"an image twice": {`{"apiVersion":"refit.dev/boot-images/v1","images":[{"architecture":"amd64","platform":"aws","version":"1.2.3","attributes":{"image":"a"}},
			{"architecture":"x86_64","platform":"aws","version":"1.2.3","attributes":{"image":"b"}}]}`, "architecture amd64, platform aws is there twice"},
		"more than anyone needs": {strings.Repeat(" ", bootstream.Largest+1), "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := bootstream.Parse([]byte(tc.data)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// OpenShift's ConfigMap with one stream, and with several.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	ten := `{"architectures":{"x86_64":{"images":{"aws":{"regions":{"eu-central-1":{"release":"10.1.20260101-0","image":"ami-010"}}}}}}}`
	s, err := bootstream.ParseConfigMap(map[string]string{"stream": string(coreos(t)), "releaseVersion": "4.21.0", "streams": `{"rhel-10":` + ten + `}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Find(bootstream.Key{OSStream: "rhel-10", Architecture: "amd64", Platform: "aws", Region: "eu-central-1"})
	if err != nil || img.Attributes["image"] != "ami-010" || s.Release != "4.21.0" {
		t.Errorf("%v %v %q", img, err, s.Release)
	}
	if img, err = s.Find(bootstream.Key{Architecture: "amd64", Platform: "aws", Region: "eu-central-1"}); err != nil || img.Attributes["image"] != "ami-0aaa" {
		t.Errorf("the default stream stays: %v %v", img, err)
	}
	for name, tc := range map[string]struct {
		data map[string]string
		key  string
		want string
	}{
		"no key at all":         {nil, "", "has no key stream"},
		"a key that is missing": {nil, "mine", "has no key mine"},
		"streams that are none": {map[string]string{"stream": string(coreos(t)), "streams": "x"}, "", "key streams"},
		"one stream is bad":     {map[string]string{"stream": string(coreos(t)), "streams": `{"rhel-10":{}}`}, "", "OS stream rhel-10"},
	} {
		if _, err := bootstream.ParseConfigMap(tc.data, tc.key); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if own, err := bootstream.ParseConfigMap(map[string]string{"mine": string(coreos(t))}, "mine"); err != nil || len(own.Images) != 15 {
		t.Error(own, err)
	}
}

// The plain list keeps all there is: a site that cannot reach the source has the same.
func TestGenericRoundTrip(t *testing.T) {
	t.Parallel()
	s := parse(t, coreos(t))
	s.Release, s.Kubernetes = "4.19.3", "1.32.6"
	data, err := bootstream.EncodeGeneric(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, parse(t, data)); diff != "" {
		t.Error("(-want +got):", diff)
	}
	if fmt.Sprint(s.Architectures(), s.Platforms()) != "[amd64 arm64] [aliyun aws azure gcp ibmcloud kubevirt metal openstack powervs vsphere]" {
		t.Error(s.Architectures(), s.Platforms())
	}
}

// An image that its platform does not have is not used, and the error has the platform's answer.
func TestAnswersOfPlatforms(t *testing.T) {
	t.Parallel()
	s := parse(t, []byte(`{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[
		{"architecture":"amd64","platform":"aws","region":"r1","version":"9.6.1","attributes":{"image":"ami-1"},"notice":"it is deprecated from 2027-01-01"},
		{"architecture":"amd64","platform":"aws","region":"r2","version":"9.6.1","attributes":{"image":"ami-2"},"unavailable":"aws-r2 does not have it"}]}`))
	data, err := bootstream.EncodeGeneric(s)
	if err != nil {
		t.Fatal(err)
	}
	s = parse(t, data) // the site has the answers too
	key := bootstream.Key{Architecture: "amd64", Platform: "aws", Region: "r1"}
	if i, err := s.Find(key); err != nil || i.Notice != "it is deprecated from 2027-01-01" {
		t.Errorf("%+v %v", i, err)
	}
	key.Region = "r2"
	if i, err := s.Find(key); !errors.Is(err, bootstream.ErrNone) || !strings.Contains(err.Error(), "region r2 9.6.1: aws-r2 does not have it") {
		t.Errorf("%+v %v", i, err)
	}
	if i, ok := s.Recognise("aws", map[string]string{"image": "ami-2"}); !ok || i.Version != "9.6.1" {
		t.Error("machines that use it have a known version")
	}
	if got := s.Notices(); len(got) != 2 || !strings.Contains(got[0], "aws-r2 does not have it") || !strings.Contains(got[1], "region r1: it is deprecated") {
		t.Errorf("%q", got)
	}
}

func TestEmptyNamesAreRefused(t *testing.T) {
	t.Parallel()
	for name, architecture := range map[string]string{
		"platform": `{"artifacts":{"":{"release":"1","formats":{"raw.gz":{"disk":{"location":"https://example.com/a"}}}}}}`,
		"format":   `{"artifacts":{"metal":{"release":"1","formats":{"":{"disk":{"location":"https://example.com/a"}}}}}}`,
		"aws":      `{"images":{"aws":{"regions":{"":{"release":"1","image":"ami-1"}}}}}`,
		"powervs":  `{"images":{"powervs":{"regions":{"":{"release":"1","object":"o"}}}}}`,
	} {
		_, err := bootstream.Parse([]byte(`{"stream":"stable","architectures":{"x86_64":` + architecture + `}}`))
		if err == nil || !strings.Contains(err.Error(), "empty name") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(coreos(f))
	f.Add([]byte(`{"stream":"s","architectures":{"x86_64":{"artifacts":{"":{"release":"1","formats":{"raw":{"disk":{"location":"l"}}}}}}}}`))
	f.Add([]byte(`{"apiVersion":"refit.dev/boot-images/v1","images":[{"architecture":"amd64","platform":"aws","region":"r","version":"1.2.3","attributes":{"image":"a"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := bootstream.Parse(data)
		if err != nil {
			return
		}
		for _, i := range s.Images {
			got, err := s.Find(i.Key)
			if err != nil && i.Key.Variant != "" {
				t.Errorf("%+v is there and not found: %v", i.Key, err)
			}
			if err == nil && i.Key.Variant != "" && got.Key != i.Key {
				t.Errorf("%+v was asked, %+v found", i.Key, got.Key)
			}
		}
		out, err := bootstream.EncodeGeneric(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range s.Images {
			if i.Version == "" {
				return // the list wants a version
			}
		}
		if again, err := bootstream.Parse(out); err != nil || len(again.Images) != len(s.Images) {
			t.Errorf("written and read again: %v", err)
		}
	})
}

// A stream of release 4.20.1 may list an image of 4.19: the image's own release counts.
func TestAnImagesOwnRelease(t *testing.T) {
	t.Parallel()
	const generic = `{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3",%s"images":[{"architecture":"amd64","platform":"aws","region":"r","version":"%s",%s"attributes":{"image":"a"}}]}`
	for name, c := range map[string]struct{ data, want string }{
		"a list made for its images":                      {fmt.Sprintf(generic, "", "9.6.20251023-0", ""), "1.36.3"},
		"an image of a list says its own":                 {fmt.Sprintf(generic, "", "9.6.20251023-0", `"release":"1.35.4",`), "1.35.4"},
		"a version that holds the release":                {fmt.Sprintf(generic, "", "419.96.202510230000-0", ""), "4.19.0"},
		"a vendor's list, on a site that cannot reach it": {fmt.Sprintf(generic, `"ownReleases":true,`, "9.6.20251023-0", ""), ""},
	} {
		s := parse(t, []byte(c.data))
		if got := s.ReleaseOf(s.Images[0]); got != c.want {
			t.Errorf("%s: release %q, want %q", name, got, c.want)
		}
	}
	vendor := parse(t, coreos(t))
	vendor.Release = "4.20.1"
	for _, i := range vendor.Images {
		if got := vendor.ReleaseOf(i); got == vendor.Release {
			t.Errorf("image %s %s of a vendor's stream has the stream's release", i.Key.Platform, i.Version)
		}
	}
}
