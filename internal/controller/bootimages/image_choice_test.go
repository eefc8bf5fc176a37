package bootimages_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
	"github.com/refit-dev/refit/internal/controller/bootimages"
	"github.com/refit-dev/refit/internal/controller/bootstreams"
)

var sum = strings.Repeat("a", 64)

func stream(t *testing.T, uploads ...bootstream.Upload) *bootstreams.Stream {
	t.Helper()
	s, err := bootstream.Parse([]byte(`{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[
		{"architecture":"amd64","platform":"vsphere","version":"9.6.1","attributes":{"location":"https://example.test/d/rhcos.ova","sha256":"` + sum + `"}},
		{"architecture":"amd64","platform":"metal","version":"9.6.1","attributes":{"location":"https://example.test/d/disk.raw.gz","sha256":"` + sum + `"}},
		{"architecture":"amd64","platform":"openstack","version":"9.6.1","attributes":{"location":"https://example.test/d/a.qcow2","sha256":"` + sum + `","name":"rhcos-9.6.1"}},
		{"architecture":"amd64","platform":"aws","region":"r1","version":"9.6.1","attributes":{"image":"ami-1"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if strange := s.AddUploads(uploads); len(strange) > 0 {
		t.Fatal(strange)
	}
	return &bootstreams.Stream{Name: "s", Data: s}
}

func asker(platform string, attributes map[string]string) bootimages.ImageQuery {
	return bootimages.ImageQuery{Choice: &v1alpha1.MachineSelection{Attributes: attributes, Region: "r1"}, Row: &machinekinds.ImageKind{Platform: platform}, Architecture: "amd64"}
}

// A file has no name on the platform before its upload; an image that the stream names
// needs no upload.
func TestUpload(t *testing.T) {
	t.Parallel()
	everywhere := bootstream.Upload{SHA256: sum, Attributes: map[string]string{"template": "given-by-person"}}
	here, elsewhere := bootstream.Upload{SHA256: sum, Region: "r1"}, bootstream.Upload{SHA256: sum, Region: "r2", Attributes: map[string]string{"template": "t"}}
	for name, tc := range map[string]struct {
		platform   string
		attributes map[string]string
		uploads    []bootstream.Upload
		needs      []string
		waits      bool
		complete   bool
		names      map[string]string
	}{
		"an image of a cloud":                   {"aws", nil, nil, []string{"image"}, false, true, map[string]string{"image": "ami-1"}},
		"a copy of it under a policy's name":    {"aws", map[string]string{"image": "ami-mine"}, nil, []string{"image"}, false, true, map[string]string{"image": "ami-mine"}},
		"a file that the list names":            {"openstack", nil, nil, []string{"name"}, false, true, map[string]string{"name": "rhcos-9.6.1"}},
		"a file without a name":                 {"vsphere", nil, nil, []string{"template"}, true, false, nil},
		"a file with a policy's name":           {"vsphere", map[string]string{"template": "rhcos-{version}"}, nil, []string{"template"}, true, true, map[string]string{"template": "rhcos-9.6.1"}},
		"uploaded under the policy's name":      {"vsphere", map[string]string{"template": "rhcos-{version}"}, []bootstream.Upload{here}, []string{"template"}, false, true, map[string]string{"template": "rhcos-9.6.1"}},
		"uploaded under a name of its own":      {"vsphere", nil, []bootstream.Upload{everywhere}, []string{"template"}, false, true, map[string]string{"template": "given-by-person"}},
		"uploaded elsewhere":                    {"vsphere", nil, []bootstream.Upload{elsewhere}, []string{"template"}, true, false, nil},
		"uploaded, and its name is unknown":     {"vsphere", nil, []bootstream.Upload{here}, []string{"template"}, true, false, nil},
		"a disk at the stream's address":        {"metal", nil, nil, []string{"location", "sha256"}, false, true, map[string]string{"location": "https://example.test/d/disk.raw.gz"}},
		"a disk on a server of the site":        {"metal", map[string]string{"location": "http://10.0.0.1/{file}"}, nil, []string{"location", "sha256"}, true, true, map[string]string{"location": "http://10.0.0.1/disk.raw.gz"}},
		"a disk on a server of the site, there": {"metal", map[string]string{"location": "http://10.0.0.1/{file}"}, []bootstream.Upload{here}, []string{"location", "sha256"}, false, true, map[string]string{"location": "http://10.0.0.1/disk.raw.gz"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, a := stream(t, tc.uploads...), asker(tc.platform, tc.attributes)
			i, err := a.Find(s)
			if err != nil {
				t.Fatal(err)
			}
			u, complete := a.Upload("s", i, tc.needs)
			if (u != nil) != tc.waits || complete != tc.complete {
				t.Errorf("waits %v, complete %v: %+v", u != nil, complete, u)
			}
			if u != nil && (u.SHA256 != sum || u.Stream != "s" || u.Region != "r1" || len(u.Names) != len(tc.needs)) {
				t.Errorf("%+v", u)
			}
			have := a.Names(i)
			for k, v := range tc.names {
				if have[k] != v {
					t.Errorf("%s is %q, want %q", k, have[k], v)
				}
				a.Ref.Attributes = map[string]string{k: v}
				if _, ok := a.Recognise(s); !ok {
					t.Errorf("%s=%s is not recognised", k, v)
				}
			}
			a.Ref.Attributes = map[string]string{tc.needs[0]: "something else"}
			if r, ok := a.Recognise(s); ok {
				t.Errorf("something else is recognised as %+v", r)
			}
		})
	}
}

// The object's own region counts, then the policy's, then the one that was found.
func TestKey(t *testing.T) {
	t.Parallel()
	a := asker("aws", nil)
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() { a.Ref.Region, a.Region = "of-object", "found" }, "of-object"},
		{func() { a.Ref.Region = "" }, "r1"},
		{func() { a.Choice.Region = "" }, "found"},
	} {
		step.change()
		k, err := a.Key()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(bootstream.Key{Architecture: "amd64", Platform: "aws", Region: step.want}, k); diff != "" {
			t.Error(diff)
		}
	}
}

// Which architecture counts: what the object says, then the policy, then that of all nodes. With
// several architectures and no word of anyone there is no image.
func TestKeyOfArchitectures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		object, policy, nodes string
		objectErr             error
		want, says            string
	}{
		"one architecture in the cluster":       {"", "", "amd64", nil, "amd64", ""},
		"the policy knows better":               {"", "arm64", "amd64", nil, "arm64", ""},
		"the object knows best":                 {"arm64", "amd64", "amd64", nil, "arm64", ""},
		"another spelling":                      {"aarch64", "", "", nil, "arm64", ""},
		"several, and no one says which":        {"", "", "", nil, "", "the cluster's nodes have several: set architecture in the policy"},
		"several, and the policy says which":    {"", "arm64", "", nil, "arm64", ""},
		"one that is not known":                 {"sparc", "", "amd64", nil, "", `architecture "sparc" is not known`},
		"an object that contradicts itself":     {"amd64", "arm64", "amd64", errors.New("two architectures"), "", "two architectures"},
		"a policy cannot name what is no known": {"", "vax", "amd64", nil, "", `architecture "vax" is not known`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := asker("aws", nil)
			a.Facts.Architecture, a.Facts.ArchitectureErr, a.Choice.Architecture, a.Architecture = c.object, c.objectErr, c.policy, c.nodes
			k, err := a.Key()
			if c.says == "" && (err != nil || k.Architecture != c.want) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("%q %v", k.Architecture, err)
			}
		})
	}
}
