package vsphere

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"

	"github.com/refit-dev/refit/providers/cloud"
	"github.com/refit-dev/refit/providers/cloud/cloudtest"
)

// addLibrary adds a content library to a simulated vCenter, and returns a cloud of it.
func (v *vcenter) addLibrary(t *testing.T) *vcenter {
	t.Helper()
	c := *v.Cloud
	c.Config.Library = t.Name()
	v = &vcenter{Cloud: &c, t: t}
	var ds string
	v.with(func(ctx context.Context, s *connection) error {
		o, err := find.NewFinder(s.Client.Client).Datastore(ctx, "/DC0/datastore/LocalDS_0")
		ds = o.Reference().Value
		return err
	})
	lib := library.Library{Name: v.Config.Library, Type: "LOCAL", Storage: []library.StorageBacking{{DatastoreID: ds, Type: "DATASTORE"}}}
	v.withLibraries(func(ctx context.Context, m *library.Manager) (err error) {
		lib.ID, err = m.CreateLibrary(ctx, lib)
		return err
	})
	// Each library costs a request when one is found by its name: cuts count requests.
	t.Cleanup(func() {
		v.withLibraries(func(ctx context.Context, m *library.Manager) error { return m.DeleteLibrary(ctx, &lib) })
	})
	return v
}

func (v *vcenter) withLibraries(f func(context.Context, *library.Manager) error) {
	v.t.Helper()
	v.with(func(ctx context.Context, s *connection) error {
		r := rest.NewClient(s.Client.Client)
		if err := r.Login(ctx, simulator.DefaultLogin); err != nil {
			return err
		}
		return f(ctx, library.NewManager(r))
	})
}

// left are the names of the items, and how many uploads have not ended.
func (v *vcenter) left() (names []string, sessions int) {
	v.t.Helper()
	v.withLibraries(func(ctx context.Context, m *library.Manager) error {
		lib, err := m.GetLibraryByName(ctx, v.Config.Library)
		if err != nil {
			return err
		}
		items, err := m.GetLibraryItems(ctx, lib.ID)
		if err != nil {
			return err
		}
		ids := map[string]bool{}
		for _, i := range items {
			names = append(names, i.Name)
			ids[i.ID] = true
		}
		all, err := m.ListLibraryItemUpdateSession(ctx)
		for _, id := range all {
			if s, err := m.GetLibraryItemUpdateSession(ctx, id); err == nil && ids[s.LibraryItemID] {
				sessions++
			}
		}
		return err
	})
	slices.Sort(names)
	return names, sessions
}

// addItem adds the item of a person.
func (v *vcenter) addItem(name string) {
	v.t.Helper()
	v.withLibraries(func(ctx context.Context, m *library.Manager) error {
		lib, err := m.GetLibraryByName(ctx, v.Config.Library)
		if err != nil {
			return err
		}
		_, err = m.CreateLibraryItem(ctx, library.Item{Name: name, LibraryID: lib.ID, Type: library.ItemTypeOVF})
		return err
	})
}

// writeDisk writes an OVA for a library. The simulator stores another file for a disk that is
// named .vmdk: it keeps no bytes of it that could be compared.
func writeDisk(t *testing.T, size int) cloud.Payload {
	t.Helper()
	return writeOVAWith(t, "disk.img", size)
}

func wantedItem(p cloud.Payload) cloud.Wanted {
	w := wanted(p)
	w.Name = "rhcos-9.6.1"
	return w
}

// An upload to a content library that dies anywhere is never taken for complete, and the next one
// ends it: without sending the disk again, if all of it was there.
func TestKilledUploadToLibrary(t *testing.T) {
	p := writeDisk(t, 300_000)
	w := wantedItem(p)
	resumed, site := 0, newVCenter(t)
	cloudtest.RunKilled(t, func(t *testing.T) cloudtest.Killed {
		v := site.addLibrary(t)
		return cloudtest.Killed{
			Upload: func(l *cloudtest.Line) error { return v.over(l).Upload(context.Background(), w, p) },
			AfterCut: func(t *testing.T) bool {
				a := v.resolve(w)
				if a.Exists && a.Unverified || a.Problem != "" {
					t.Errorf("%+v", a)
				}
				return a.Exists
			},
			AfterEnd: func(t *testing.T, second *cloudtest.Line) bool {
				if second.Bytes < 300_000 {
					resumed++
				}
				a := v.resolve(w)
				if a.Unverified || a.Problem != "" || a.Names["item"] != w.Name || a.Names["library"] != v.Config.Library || a.Created.IsZero() {
					t.Errorf("%+v", a)
				}
				if names, sessions := v.left(); fmt.Sprint(names) != "[rhcos-9.6.1]" || sessions > 1 {
					t.Error("left over:", names, sessions)
				}
				return a.Exists
			},
		}
	})
	if resumed == 0 {
		t.Error("no upload continued a complete item")
	}
}

// What the library received is compared with the file, and the file with its SHA-256.
func TestDamagedUploadToLibrary(t *testing.T) {
	p := writeDisk(t, 300_000)
	w := wantedItem(p)
	v := newVCenter(t).addLibrary(t)
	err := v.over(&cloudtest.Line{Flip: 150_000}).Upload(context.Background(), w, p)
	if err == nil || !strings.Contains(err.Error(), "vCenter received other bytes: the checksum of disk.img") || v.resolve(w).Exists {
		t.Errorf("%v", err)
	}
	if names, sessions := v.left(); len(names) != 0 || sessions != 0 {
		t.Error("left over:", names, sessions)
	}
	data, err := os.ReadFile(p.Path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(p.Path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	err = v.Upload(context.Background(), w, p)
	if err == nil || !strings.Contains(err.Error(), "the file changed while it was sent") || v.resolve(w).Exists {
		t.Errorf("%v", err)
	}
}

func TestContentLibrary(t *testing.T) {
	p := writeDisk(t, 1000)
	w := wantedItem(p)
	v := newVCenter(t)
	v.Config.Library = "images"
	if _, err := v.Resolve(context.Background(), w); err == nil || !strings.Contains(err.Error(), "content library images") {
		t.Error("a library that does not exist is not an image that does not exist:", err)
	}
	v = v.addLibrary(t)
	if a := v.resolve(w); a.Exists {
		t.Errorf("%+v", a)
	}
	if err := v.Upload(context.Background(), w, p); err != nil {
		t.Fatal(err)
	}
	if err := v.Upload(context.Background(), w, p); err != nil {
		t.Errorf("it is there already: %v", err)
	}
	// The item of another file: a constant name over releases.
	next := wantedItem(writeDisk(t, 2000))
	if a := v.resolve(next); a.Exists || !strings.Contains(a.Problem, p.SHA256) {
		t.Errorf("%+v", a)
	}
	if err := v.Upload(context.Background(), next, p); err == nil || !strings.Contains(err.Error(), "use {version}") {
		t.Error(err)
	}
	// An item that a person made, and one that has the name of an upload.
	v.addItem("rhcos-9.6.2")
	w.Name = "rhcos-9.6.2"
	if a := v.resolve(w); !a.Exists || !a.Unverified || a.Names["item"] != w.Name {
		t.Errorf("%+v", a)
	}
	w.Name = "rhcos-9.6.3"
	v.addItem(w.Name + uploadSuffix)
	if err := v.Upload(context.Background(), w, p); err == nil || !strings.Contains(err.Error(), "refit did not create it") {
		t.Error(err)
	}
	if names, _ := v.left(); !slices.Contains(names, w.Name+uploadSuffix) {
		t.Error("refit deleted the item of another:", names)
	}
}

// vCenter's own checksum of a file counts; of a kind that is not known refit reads the file.
func TestFileDiffers(t *testing.T) {
	p := writeDisk(t, 1000)
	a, err := readArchive(p)
	if err != nil {
		t.Fatal(err)
	}
	m, size, other := a.members["disk.img"], int64(1000), int64(999)
	for name, tc := range map[string]struct {
		size *int64
		sum  *library.Checksum
		want string
	}{
		"SHA-256":         {&size, &library.Checksum{Algorithm: "SHA256", Checksum: strings.ToUpper(m.sha256)}, ""},
		"SHA-1":           {&size, &library.Checksum{Algorithm: "SHA1", Checksum: m.sha1}, ""},
		"the default one": {nil, &library.Checksum{Checksum: m.sha1}, ""},
		"another SHA-1":   {&size, &library.Checksum{Algorithm: "SHA1", Checksum: m.sha256[:40]}, "the checksum of disk.img is"},
		"another SHA-256": {&size, &library.Checksum{Algorithm: "SHA256", Checksum: m.sha1}, "the checksum of disk.img is"},
		"another size":    {&other, &library.Checksum{Algorithm: "SHA1", Checksum: m.sha1}, "disk.img has 999 bytes, the file 1000"},
	} {
		got, err := (&contentLibrary{}).fileDiffers(context.Background(), &library.Item{}, library.File{Name: "disk.img", Size: tc.size, Checksum: tc.sum}, m)
		if err != nil || (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}
