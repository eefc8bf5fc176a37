package vsphere

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud"
	"github.com/refit-dev/refit/providers/cloud/cloudtest"
)

// writeOVA writes an OVA with a disk of random bytes.
func writeOVA(t *testing.T, size int) cloud.Payload {
	t.Helper()
	return writeOVAWith(t, "disk.vmdk", size)
}

func writeOVAWith(t *testing.T, name string, size int) cloud.Payload {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rhcos.ova")
	data := cloudtest.OVA(t, name, size)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return cloud.Payload{Path: path, Size: int64(len(data)), SHA256: fmt.Sprintf("%x", sha256.Sum256(data))}
}

func wanted(p cloud.Payload) cloud.Wanted {
	return cloud.Wanted{Name: "/DC0/vm/rhcos-9.6.1", Image: bootstream.Image{Key: bootstream.Key{Architecture: "amd64", Platform: "vsphere"}, Version: "9.6.1",
		Attributes: map[string]string{"location": "https://example.test/rhcos.ova", "sha256": p.SHA256}}}
}

// vcenter is a simulated vCenter with TLS and a login.
type vcenter struct {
	*Cloud
	t *testing.T
}

func newVCenter(t *testing.T) *vcenter {
	t.Helper()
	server, ca, user := cloudtest.VCenter(t)
	return &vcenter{t: t, Cloud: &Cloud{Config: Config{Server: server, CAFile: ca, Pool: cloudtest.Pool}, Login: func() (string, string, error) {
		password, _ := user.Password()
		return user.Username(), password, nil
	}}}
}

// over returns the cloud over a line.
func (v *vcenter) over(l *cloudtest.Line) *Cloud {
	c := *v.Cloud
	c.Transport = l.Wrap
	return &c
}

func (v *vcenter) resolve(w cloud.Wanted) cloud.Answer {
	v.t.Helper()
	a, err := v.Resolve(context.Background(), w)
	if err != nil {
		v.t.Fatal(err)
	}
	return a
}

// machines are the names of virtual machines and templates.
func (v *vcenter) machines() []string {
	v.t.Helper()
	var out []string
	v.with(func(ctx context.Context, s *connection) error {
		all, err := s.finder.VirtualMachineList(ctx, "*")
		for _, m := range all {
			out = append(out, m.Name())
		}
		slices.Sort(out)
		return err
	})
	return out
}

func (v *vcenter) with(f func(context.Context, *connection) error) {
	v.t.Helper()
	ctx := context.Background()
	s, err := v.connect(ctx)
	if err != nil {
		v.t.Fatal(err)
	}
	defer s.close(ctx)
	if err := f(ctx, s); err != nil {
		v.t.Fatal(err)
	}
}

const existing = "DC0_C0_RP0_VM0"

// An upload that dies anywhere is never taken for complete, and the next one ends it: without
// sending the disk again, if all of it was there.
func TestKilledUpload(t *testing.T) {
	p := writeOVA(t, 300_000)
	w := wanted(p)
	resumed := 0
	cloudtest.RunKilled(t, func(t *testing.T) cloudtest.Killed {
		v := newVCenter(t)
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
				if a.Unverified || a.Problem != "" || a.Names["template"] != w.Name {
					t.Errorf("%+v", a)
				}
				if got := fmt.Sprint(v.machines()); got != "[DC0_C0_RP0_VM0 DC0_H0_VM0 rhcos-9.6.1]" {
					t.Error("left over:", got)
				}
				return a.Exists
			},
		}
	})
	if resumed == 0 {
		t.Error("no upload continued a complete import")
	}
}

// What vCenter received is compared with the file, and the file with its SHA-256.
func TestDamagedUpload(t *testing.T) {
	p := writeOVA(t, 300_000)
	w := wanted(p)
	v := newVCenter(t)
	err := v.over(&cloudtest.Line{Flip: 150_000}).Upload(context.Background(), w, p)
	if err == nil || !strings.Contains(err.Error(), "vCenter received other bytes") || v.resolve(w).Exists {
		t.Errorf("%v", err)
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

func TestResolve(t *testing.T) {
	p := writeOVA(t, 1000)
	w := wanted(p)
	v := newVCenter(t)
	if a := v.resolve(w); a.Exists || a.Problem != "" {
		t.Errorf("%+v", a)
	}
	named := w
	named.Name = "/DC0/vm/" + existing
	if a := v.resolve(named); a.Exists || !strings.Contains(a.Problem, "is a virtual machine and no template") {
		t.Errorf("%+v", a)
	}
	// A template that a person made.
	v.with(func(ctx context.Context, s *connection) error {
		m, err := s.finder.VirtualMachine(ctx, existing)
		if err != nil {
			return err
		}
		task, err := m.PowerOff(ctx)
		if err != nil {
			return err
		}
		if err := task.Wait(ctx); err != nil {
			return err
		}
		return m.MarkAsTemplate(ctx)
	})
	if a := v.resolve(named); !a.Exists || !a.Unverified {
		t.Errorf("%+v", a)
	}
	if err := v.Upload(context.Background(), named, p); err != nil {
		t.Errorf("it is there already: %v", err)
	}
	// The template of another file: a constant name over releases.
	if err := v.Upload(context.Background(), w, p); err != nil {
		t.Fatal(err)
	}
	next := wanted(writeOVA(t, 2000))
	if a := v.resolve(next); a.Exists || !strings.Contains(a.Problem, p.SHA256) {
		t.Errorf("%+v", a)
	}
	if err := v.Upload(context.Background(), next, p); err == nil || !strings.Contains(err.Error(), "use {version}") {
		t.Error(err)
	}
}

// refit deletes nothing that it did not create.
func TestForeignMachineStays(t *testing.T) {
	p := writeOVA(t, 1000)
	w := wanted(p)
	v := newVCenter(t)
	v.with(func(ctx context.Context, s *connection) error {
		m, err := s.finder.VirtualMachine(ctx, existing)
		if err != nil {
			return err
		}
		task, err := m.Rename(ctx, "rhcos-9.6.1"+uploadSuffix)
		if err != nil {
			return err
		}
		return task.Wait(ctx)
	})
	if err := v.Upload(context.Background(), w, p); err == nil || !strings.Contains(err.Error(), "refit did not create it") {
		t.Error(err)
	}
	if !slices.Contains(v.machines(), "rhcos-9.6.1"+uploadSuffix) {
		t.Error("refit deleted the machine of another")
	}
}

func TestVCenterThatDoesNotAnswer(t *testing.T) {
	v := newVCenter(t)
	w := wanted(writeOVA(t, 1000))
	v.Login = func() (string, string, error) { return "", "", nil }
	if _, err := v.Resolve(context.Background(), w); err == nil || !strings.Contains(err.Error(), "log in to") {
		t.Error("a refused login is not an image that does not exist:", err)
	}
	v.Config.CAFile = ""
	if _, err := v.Resolve(context.Background(), w); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error("an unknown certificate must be refused:", err)
	}
}
