package bundlestore

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// device is a medium in memory that counts what is read of it.
type device struct {
	raw   []byte
	err   error
	hangs chan struct{}
	reads atomic.Int64
	bytes atomic.Int64
}

func (d *device) ReadAt(p []byte, off int64) (int, error) {
	if d.hangs != nil {
		<-d.hangs
	}
	d.reads.Add(1)
	if d.err != nil {
		return 0, d.err
	}
	n, err := bytes.NewReader(d.raw).ReadAt(p, off)
	d.bytes.Add(int64(n))
	return n, err
}

func (*device) Close() error { return nil }

func (d *device) Size() int64 { return int64(len(d.raw)) }

func setOf(devices map[string]*device) *MediaSet {
	return &MediaSet{wait: time.Minute, open: func(m media.Medium) (Handle, int64, error) { return devices[m.Path], -1, nil }}
}

func plugged(path, key string) media.Medium { return media.Medium{Path: path, Device: true, Key: key} }

// A device that was no good costs nothing until something else is in it.
func TestAnUnchangedDeviceIsReadOnce(t *testing.T) {
	good := bundletest.Bytes(t, bundletest.Tiny())
	costly := bundletest.Costly(1<<20, 1<<20)["manifests without content"]
	for name, d := range map[string]*device{
		"without a bundle":  {raw: make([]byte, 4096)},
		"empty":             {},
		"a hostile header":  {raw: costly},
		"a bundle cut off":  {raw: good[:9000]},
		"that is not there": {err: errors.New("input/output error")},
	} {
		s := setOf(map[string]*device{"/dev/sdb": d})
		s.Scan([]media.Medium{plugged("/dev/sdb", "1")})
		first := d.reads.Load()
		if first == 0 {
			t.Errorf("%s: it was never read", name)
		}
		for range 3 {
			s.Scan([]media.Medium{plugged("/dev/sdb", "1")})
		}
		if again := d.reads.Load() - first; again != 0 {
			t.Errorf("%s: three more scans read it %d times", name, again)
		}
		if s.Scan([]media.Medium{plugged("/dev/sdb", "2")}); d.reads.Load() == first {
			t.Errorf("%s: what came into the drive was not read", name)
		}
	}
}

// Of a device with a bundle only its beginning is compared, and of one without only the places
// where file systems begin are read.
func TestHowMuchIsRead(t *testing.T) {
	with, without := &device{raw: bundletest.Bytes(t, bundletest.Tiny())}, &device{raw: make([]byte, 1<<20)}
	s := setOf(map[string]*device{"/dev/sdb": with, "/dev/sdc": without})
	now := []media.Medium{plugged("/dev/sdb", "1"), plugged("/dev/sdc", "1")}
	if !s.Scan(now) || without.bytes.Load() > 16<<10 {
		t.Fatalf("%d bytes of a device without a bundle were read", without.bytes.Load())
	}
	before := with.bytes.Load()
	if s.Scan(now) || with.bytes.Load()-before > comparedBytes {
		t.Fatalf("%d bytes of a known bundle were read again", with.bytes.Load()-before)
	}
}

// A disk that hangs (the kernel retries it for minutes) delays neither the state of the
// other media nor new ones, and is named.
func TestADiskThatHangsHoldsUpNoOther(t *testing.T) {
	raw := bundletest.Bytes(t, bundletest.Tiny())
	digest := header(t, raw).Digest
	hangs := &device{raw: raw, hangs: make(chan struct{})}
	s := setOf(map[string]*device{"/dev/hangs": hangs, "/dev/sdb": {raw: raw}, "/dev/sdc": {raw: raw}})
	s.wait = time.Second
	late := make(chan struct{}, 1)
	s.Changed = func() { late <- struct{}{} }
	if !s.Scan([]media.Medium{plugged("/dev/hangs", "1"), plugged("/dev/sdb", "1")}) || s.With(digest) == nil {
		t.Fatal("the other medium was not recognised")
	}
	if !s.Scan([]media.Medium{plugged("/dev/hangs", "1"), plugged("/dev/sdb", "1"), plugged("/dev/sdc", "1")}) {
		t.Fatal("a medium that came later was not recognised")
	}
	got := s.Describe(Policy{}, nil)
	if len(got) != 3 || got[2].Device != "/dev/hangs" || got[2].State != v1alpha1.MediumUnreadable {
		t.Fatalf("%+v", got)
	}
	close(hangs.hangs)
	select {
	case <-late:
	case <-time.After(10 * time.Second):
		t.Fatal("it answered, and no change was reported")
	}
	if got := s.Describe(Policy{}, nil); len(got) != 3 || got[2].State != v1alpha1.MediumFound {
		t.Fatalf("%+v", got)
	}
	if hangs.reads.Load() > 10 {
		t.Errorf("it was read %d times", hangs.reads.Load())
	}
}

// What is pulled while it is read is not there afterwards.
func TestADiskThatIsPulledWhileItHangs(t *testing.T) {
	hangs := &device{raw: bundletest.Bytes(t, bundletest.Tiny()), hangs: make(chan struct{})}
	s := setOf(map[string]*device{"/dev/hangs": hangs})
	s.wait = 50 * time.Millisecond
	s.Scan([]media.Medium{plugged("/dev/hangs", "1")})
	s.Scan(nil)
	close(hangs.hangs)
	for range 100 {
		s.mu.Lock()
		busy := len(s.busy)
		s.mu.Unlock()
		if busy == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := s.Describe(Policy{}, nil); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
}

// The status has room for eight media: those of a tenant with many volumes do not hide
// the one that a person plugged in and approved.
func TestAllowedMediaComeFirst(t *testing.T) {
	devices := map[string]*device{}
	var now []media.Medium
	for i := range 20 {
		path := fmt.Sprintf("/dev/rbd%d", i)
		spec := bundletest.Tiny()
		spec.Version = fmt.Sprintf("1.0.%d", i)
		devices[path] = &device{raw: bundletest.Bytes(t, spec)}
		now = append(now, plugged(path, "1"))
	}
	raw := bundletest.Bytes(t, bundletest.Tiny())
	devices["/dev/sdz"], devices["/dev/sda"] = &device{raw: raw}, &device{raw: raw[:9000]}
	s := setOf(devices)
	s.Scan(append(now, plugged("/dev/sda", "1"), plugged("/dev/sdz", "1")))
	got := s.Describe(Policy{Approved: []string{header(t, raw).Digest}}, func(string) Availability { return Availability{} })
	if len(got) != 22 || got[0].Device != "/dev/sdz" || got[21].Device != "/dev/sda" {
		t.Fatalf("first %s, last %s of %d", got[0].Device, got[len(got)-1].Device, len(got))
	}
}

// The controller gets the header of a bundle that is not approved yet, byte for byte,
// although this process has read only its label.
func TestTheRawHeaderOfAFoundBundle(t *testing.T) {
	good := bundletest.Bytes(t, bundletest.Tiny())
	s := setOf(map[string]*device{"/dev/sdb": {raw: good}})
	s.Scan([]media.Medium{plugged("/dev/sdb", "1")})
	f, err := bundlereader.Open(bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	h := f.Header()
	p := s.With(h.Digest)
	if p == nil {
		t.Fatal("the bundle was not found")
	}
	raw, err := p.RawHeader()
	if err != nil || !bytes.Equal(raw, h.Raw) {
		t.Errorf("%d bytes instead of %d, %v", len(raw), len(h.Raw), err)
	}
}
