package bundle

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

// Every bound of the metadata holds at its edge: the last value that may be and the first
// one that may not.
func TestMetadataAtItsLimits(t *testing.T) {
	t.Parallel()
	long := "r" + strings.Repeat("/abcdefg", 63) + "/abcdef" // 512 characters
	scalar := func(change func(*Metadata)) *Metadata {
		m := &Metadata{FormatVersion: 1, MinRefit: "0.1.0", Name: "n", Version: "1.0.0", ChunkSize: 512}
		change(m)
		return m
	}
	blobs := func(chunk int64, blobs ...Blob) *Metadata {
		for i := range blobs {
			blobs[i].Digest = fmt.Sprintf("sha256:%064x", i)
		}
		return scalar(func(m *Metadata) { m.ChunkSize, m.Blobs = chunk, blobs })
	}
	image := func(img Image) *Metadata {
		return scalar(func(m *Metadata) {
			m.Blobs = []Blob{{Digest: smallSum, UnpackedSize: img.UnpackedSize}}
			img.Digest, img.Blobs = smallSum, []int{0}
			m.Images = []Image{img}
		})
	}
	const most = 1 << 50
	for _, c := range []struct {
		m    *Metadata
		says string
	}{
		{scalar(func(*Metadata) {}), ""},
		{scalar(func(m *Metadata) { m.FormatVersion = 0 }), "format version 0, this refit reads 1"},
		{scalar(func(m *Metadata) { m.Name = "N" }), `bad bundle name "N"`},
		{scalar(func(m *Metadata) { m.Name = strings.Repeat("n", 63) }), ""},
		{scalar(func(m *Metadata) { m.Name = strings.Repeat("n", 64) }), `bad bundle name "` + strings.Repeat("n", 64) + `"`},
		{scalar(func(m *Metadata) { m.Name = strings.Repeat("N", 99) }), `bad bundle name "` + strings.Repeat("N", 80) + `"`},
		{scalar(func(m *Metadata) { m.Version = "1" }), `bundle version "1" is not a semantic version`},
		{scalar(func(m *Metadata) { m.MinRefit = "" }), `minRefit "" is not a semantic version`},
		{scalar(func(m *Metadata) { m.KubernetesVersion = "v1.36.3" }), ""},
		{scalar(func(m *Metadata) { m.KubernetesVersion = "stable" }), `Kubernetes version "stable" is not a semantic version`},
		{scalar(func(m *Metadata) { m.ChunkSize = 511 }), "chunk size 511 is not in 512..67108864"},
		{scalar(func(m *Metadata) { m.ChunkSize = 64 << 20 }), ""},
		{scalar(func(m *Metadata) { m.ChunkSize = 64<<20 + 1 }), "chunk size 67108865 is not in 512..67108864"},
		{scalar(func(m *Metadata) { m.Platforms = []string{"linux/arm/v7", "linux/arm64"} }), ""},
		{scalar(func(m *Metadata) { m.Platforms = []string{"linux"} }), `bad platform "linux"`},
		{blobs(512, Blob{Size: most - 1024}), "the blobs have 2199023255550 chunks, more than a header has room for"},
		{blobs(512, Blob{Size: most - 1023}), "the blobs are larger than any bundle may be"},
		{blobs(512, Blob{Size: most - 2048}, Blob{Size: 1}), "the blobs are larger than any bundle may be"},
		{blobs(512, Blob{Size: most + 1}), fmt.Sprintf("blob sha256:%064x: bad size %d or unpacked size 0", 0, most+1)},
		{blobs(512, Blob{UnpackedSize: most}), ""},
		{blobs(512, Blob{UnpackedSize: most}, Blob{}), ""},
		{blobs(512, Blob{UnpackedSize: most}, Blob{UnpackedSize: 1}), "the blobs unpack to more than any bundle may have"},
		{blobs(512, Blob{UnpackedSize: most + 1}), fmt.Sprintf("blob sha256:%064x: bad size 0 or unpacked size %d", 0, most+1)},
		{blobs(512, Blob{Size: 1 << 30}), ""},
		{blobs(512, Blob{Size: 1<<30 + 1}), "the blobs have 2097153 chunks, more than a header has room for"},
		{blobs(512, Blob{Size: 1 << 30}, Blob{Size: 1}), "the blobs have 2097153 chunks, more than a header has room for"},
		{image(Image{Name: long, Group: "g", MediaType: strings.Repeat("m", 127), UnpackedSize: most}), ""},
		{image(Image{Name: long + "h", Group: "g", MediaType: "m"}), `bad image name "` + long[:80] + `"`},
		{image(Image{Name: "a b", Group: "g", MediaType: "m"}), `bad image name "a b"`},
		{image(Image{Name: "a", Group: "", MediaType: "m"}), "image a: bad group, media type or unpacked size"},
		{image(Image{Name: "a", Group: "g", MediaType: strings.Repeat("m", 128)}), "image a: bad group, media type or unpacked size"},
		{image(Image{Name: "a", Group: "g", MediaType: "m", Size: 1}), "image a: its size is declared as 1, its blobs have 0 bytes"},
	} {
		err := c.m.Check()
		if c.says == "" && err != nil || c.says != "" && (err == nil || err.Error() != c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	if len(long) != 512 {
		t.Fatalf("the longest name has %d characters", len(long))
	}
}

// A bundle that would be refused when it is read is not written.
func TestListsThatAreTooLongAreNotWritten(t *testing.T) {
	t.Parallel()
	size := func(images, references, payloads, platforms, blobs int) *Metadata {
		m := &Metadata{FormatVersion: 1, MinRefit: "0.1.0", Name: "n", Version: "1.0.0", ChunkSize: 512, Payloads: []Payload{}}
		for i := range max(1, blobs) {
			m.Blobs = append(m.Blobs, Blob{Digest: fmt.Sprintf("sha256:%064x", i)})
		}
		for i := range images {
			img := Image{Name: fmt.Sprintf("r.example/a%05d:1", i), Digest: m.Blobs[0].Digest, Group: "g", MediaType: "m", Blobs: []int{0}}
			for i == 0 && len(img.Blobs) < references-images+1 {
				img.Blobs = append(img.Blobs, len(img.Blobs))
			}
			m.Images = append(m.Images, img)
		}
		for i := range payloads {
			m.Payloads = append(m.Payloads, Payload{Name: fmt.Sprintf("p%05d", i), Digest: m.Blobs[0].Digest})
		}
		for range platforms {
			m.Platforms = append(m.Platforms, "linux/amd64")
		}
		return m
	}
	for _, c := range []struct {
		m    *Metadata
		says string
	}{
		{size(8192, 8192, 4096, 64, 32768), ""},
		{size(8193, 8193, 0, 0, 1), "8193 images are more than the 8192 allowed: make two bundles"},
		{size(0, 0, 4097, 0, 1), "4097 payloads are more than the 4096 allowed: make two bundles"},
		{size(0, 0, 0, 65, 1), "65 platforms are more than the 64 allowed: make two bundles"},
		{size(0, 0, 0, 0, 32769), "32769 blobs are more than the 32768 allowed: make two bundles"},
		{size(1, 1<<18+1, 0, 0, 1<<18+1), "262145 blobs of images are more than the 262144 allowed: make two bundles"},
	} {
		err := c.m.Check()
		if c.says == "" && err != nil || c.says != "" && (err == nil || err.Error() != c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}

// What a header is asked for: images, payloads and who uses a blob.
func TestHeaderIsAsked(t *testing.T) {
	t.Parallel()
	h := &Header{Metadata: sampleMetadata()}
	m := h.Metadata
	m.Images = append(m.Images, Image{Name: "registry.example/c:1", Digest: smallSum, Blobs: []int{0}})
	m.Payloads = append(m.Payloads, Payload{Name: "kubelet", Platform: "linux/arm64", Blob: 1}, Payload{Name: "tool", Blob: 1}, Payload{Name: "tool", Platform: "linux/amd64", Blob: 1})
	m.Blobs = append(m.Blobs, Blob{})
	for i, want := range []*Image{&m.Images[0], &m.Images[1], &m.Images[2]} {
		if h.ImageByName(m.Images[i].Name) != want {
			t.Errorf("image %d is not found by its name", i)
		}
	}
	if h.ImageByDigest(smallSum) != &m.Images[0] || h.ImageByDigest(emptySum) != &m.Images[1] || h.ImageByDigest("sha256:1") != nil || h.ImageByName("c") != nil {
		t.Error("by digest: not the first of that digest")
	}
	for name, c := range map[string]struct {
		held model.PinSetImage
		want *Image
	}{
		"name and digest": {model.PinSetImage{Name: imageB, Digest: emptySum}, &m.Images[1]},
		"another digest":  {model.PinSetImage{Name: imageB, Digest: smallSum}, nil},
		"another name":    {model.PinSetImage{Name: "registry.example/d:1", Digest: emptySum}, nil},
		"its base":        {model.PinSetImage{Name: "site.example/d:1", Digest: "sha256:1", Base: emptySum}, &m.Images[1]},
		"no such base":    {model.PinSetImage{Name: imageB, Digest: emptySum, Base: "sha256:1"}, nil},
	} {
		if got := h.ImageForPin(c.held); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, c := range map[[2]string]*Payload{
		{"kubelet", "linux/amd64"}: &m.Payloads[1], {"kubelet", "linux/arm64"}: &m.Payloads[2], {"kubelet", "linux/s390x"}: nil, {"kubelet", ""}: nil,
		{"tool", "linux/amd64"}: &m.Payloads[4], {"tool", "linux/arm64"}: &m.Payloads[3], {"tool", ""}: &m.Payloads[3], {"any", "linux/arm64"}: &m.Payloads[0], {"none", ""}: nil,
	} {
		if got := h.PayloadByName(name[0], name[1]); got != c {
			t.Errorf("payload %v: %+v", name, got)
		}
	}
	for blob, want := range []string{"image " + imageA + " and 2 more", "image " + imageA + " and 4 more", "image " + imageB + " and 1 more", ""} {
		if got := h.UserOf(blob); got != want {
			t.Errorf("blob %d is used by %q, want %q", blob, got, want)
		}
	}
	m.Images = nil
	if got := h.UserOf(2); got != "payload any" {
		t.Errorf("a blob of one payload is used by %q", got)
	}
}

// The texts of a refusal are complete: reason, object, message and fix.
func TestDecideSaysWhatToDo(t *testing.T) {
	t.Parallel()
	h := &Header{Digest: smallSum, Metadata: &Metadata{Name: "n", Version: "1.0.0", MinRefit: "0.2.0"}}
	signed := *h
	signed.Signatures = []Envelope{{Signatures: []Signature{{KeyID: "0123456789abcdef"}, {KeyID: "fedcba9876543210"}}}}
	found := "n 1.0.0 (" + smallSum + ")"
	for name, c := range map[string]struct {
		h                    *Header
		approved             []string
		trust                model.Trust
		refit                string
		reason, message, fix string
	}{
		"revoked":  {h, []string{smallSum}, model.Trust{RevokedDigests: []string{"sha256:0", smallSum}}, "", "BundleRevoked", "bundle " + found + " is revoked by a TrustPolicy", "bring another bundle, or remove the digest from revokedDigests"},
		"too new":  {h, []string{smallSum}, model.Trust{}, "0.1.9", "BundleTooNew", "bundle " + found + " needs refit 0.2.0 or later, this is 0.1.9", "update refit first"},
		"unsigned": {h, []string{smallSum}, model.Trust{RequireSignatures: true}, "0.2.0", "SignaturesRequired", "bundle " + found + " is approved by its digest, and a TrustPolicy requires signatures; it is not signed", "have it signed (refit bundle sign) by enough keys of one TrustPolicy, or set require: Digest in the TrustPolicy"},
		"other":    {&signed, []string{"sha256:0", "sha256:1"}, model.Trust{}, "nightly", "DigestMismatch", "found bundle " + found + `, expected sha256:0 or sha256:1; no trusted key signed it (key ids in it: "0123456789abcdef", "fedcba9876543210")`, "bring the expected bundle, or approve the digest that was found in a Bundle object"},
		"unknown":  {h, nil, model.Trust{RequireSignatures: true}, "0.2.0-rc.1", "BundleNotApproved", "found bundle " + found + ", which no Bundle or TrustPolicy approves; it is not signed", "approve its digest in a Bundle object, or trust its key in a TrustPolicy"},
	} {
		want := model.Blocker{Reason: c.reason, Message: c.message, Fix: c.fix, Object: "Bundle/" + smallSum}
		if d := Decide(c.h, c.approved, c.trust, c.refit); d.Allowed || d.By != "" || d.Blocker != want {
			t.Errorf("%s: %+v, want %+v", name, d, want)
		}
	}
	for refit, want := range map[string]bool{"0.1.9": true, "0.2.0": false, "0.2.0-dev": false, "0.3.0": false, "": false, "nightly": false} {
		if tooNew("0.2.0", refit) != want {
			t.Errorf("refit %q reads a bundle for 0.2.0: %t", refit, want)
		}
	}
	if tooNew("x", "0.0.1") {
		t.Error("a bundle without a version for refit is too new")
	}
}

// Edges of a label, and its slot, which travels without its padding.
func TestLabelAtItsLimits(t *testing.T) {
	t.Parallel()
	good := Label{Digest: smallSum, Name: "n", Version: "1.0.0", MinRefit: "0.1.0", Slot: []byte(`{"signatures":[]}`), HeaderSize: 512, FileSize: 2 << 50}
	h, err := good.Header()
	if err != nil || h.Digest != smallSum || h.Metadata.Name != "n" || h.Metadata.Version != "1.0.0" || h.Metadata.MinRefit != "0.1.0" || h.HeaderSize() != 512 || h.FileSize() != 2<<50 {
		t.Fatalf("%+v, %v", h, err)
	}
	if again, err := h.Label(); err != nil || fmt.Sprint(again) != fmt.Sprint(good) {
		t.Errorf("%+v, %v", again, err)
	}
	for says, change := range map[string]func(*Label){
		"a digest, name or version has a bad form":                            func(l *Label) { l.Digest = "" },
		"it cannot have 512 bytes of header and 2251799813685249 in all":      func(l *Label) { l.FileSize++ },
		"it cannot have 512 bytes of header and 511 in all":                   func(l *Label) { l.FileSize = 511 },
		"it cannot have 0 bytes of header and 2251799813685248 in all":        func(l *Label) { l.HeaderSize = 0 },
		"it cannot have 67108865 bytes of header and 2251799813685248 in all": func(l *Label) { l.HeaderSize = 64<<20 + 1 },
		"16385 bytes of signatures":                                           func(l *Label) { l.Slot = slices.Repeat([]byte{' '}, 16<<10+1) },
		"its signatures are not JSON: unexpected end of JSON input":           func(l *Label) { l.Slot = nil },
	} {
		l := good
		change(&l)
		if _, err := l.Header(); err == nil || err.Error() != "label of a bundle: "+says {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// The programs that a payload may replace are in order, once each, and payloads can have
// their names.
func TestProgramsAreNamesOfPayloads(t *testing.T) {
	t.Parallel()
	names := Programs()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) || slices.ContainsFunc(names, func(n string) bool { return !ValidName(n) }) {
		t.Errorf("%v", names)
	}
	for _, runtime := range []string{"containerd", "containerd-shim-runc-v2", "crio", "conmon", "runc", "crun", "crictl"} {
		if !slices.Contains(names, runtime) {
			t.Errorf("%s is not replaced", runtime)
		}
	}
}
