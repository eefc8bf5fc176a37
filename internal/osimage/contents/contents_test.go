package contents

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
)

// entry of a layer in words: "etc/", "etc/a=text", "etc/l->target", "etc/h=>etc/a",
// ".wh." names as they are; further fields set the header.
type entry struct {
	say string
	set func(*tar.Header)
}

func e(say string, set ...func(*tar.Header)) entry {
	x := entry{say: say}
	if len(set) > 0 {
		x.set = set[0]
	}
	return x
}

func tarOf(t fataler, entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, x := range entries {
		h, body := headerOf(x.say)
		if x.set != nil {
			x.set(h)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(x.say, err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(x.say, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type fataler interface{ Fatal(args ...any) }

func headerOf(say string) (h *tar.Header, body string) {
	if name, target, ok := strings.Cut(say, "=>"); ok {
		return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}, ""
	}
	if name, target, ok := strings.Cut(say, "->"); ok {
		return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, ""
	}
	if strings.HasSuffix(say, "/") {
		return &tar.Header{Typeflag: tar.TypeDir, Name: say, Mode: 0o755}, ""
	}
	name, body, _ := strings.Cut(say, "=")
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body))}, body
}

// layer is an uncompressed layer of a registry.
func layer(t fataler, entries ...entry) Layer { return plain(tarOf(t, entries...)) }

func plain(b []byte) Layer {
	d := model.DigestOf(b)
	return Layer{Digest: d, DiffID: d, MediaType: "application/vnd.oci.image.layer.v1.tar", Size: int64(len(b)), Open: opens(b)}
}

func opens(b []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

// sealed is a layer that fails the test when it is read.
func sealed(name string) Layer {
	return Layer{Digest: "sha256:" + name, DiffID: "sha256:" + name, MediaType: "application/vnd.oci.image.layer.v1.tar", Size: 500 << 20,
		Open: func() (io.ReadCloser, error) { return nil, errors.New("a layer that both images share was read") }}
}

func image(layers ...Layer) Image { return Image{Platform: "linux/amd64", Layers: layers} }

func mode(m int64) func(*tar.Header) { return func(h *tar.Header) { h.Mode = m } }

var chrony = []osimage.Rule{{Files: []string{"/etc/chrony.conf", "/etc/app.d"}, Actions: []osimage.Action{{Type: osimage.ActionReload, Unit: "chronyd.service"}}},
	{Units: []string{"own.service"}, Actions: []osimage.Action{{Type: osimage.ActionRestart, Unit: "own.service"}}}}

// What differs between two images, and what of it reaches a node without a boot.
func TestCompare(t *testing.T) {
	t.Parallel()
	base := sealed("base")
	for name, c := range map[string]struct {
		was, is []Layer
		want    []string
		// live are the files that agents write, why that they do not.
		live, why string
	}{
		"the same layers are not read": {was: []Layer{base}, is: []Layer{base}, live: "has the same contents"},
		"the same content in layers of another time": {
			was: []Layer{base, layer(t, e("usr/"), e("usr/bin=x"))}, is: []Layer{base, layer(t, e("usr/", func(h *tar.Header) { h.Devmajor = 0; h.Name = "./usr/" }), e("./usr/bin=x"))}, live: "has the same contents"},
		"a file that a rule speaks of": {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/"), e("etc/chrony.conf=new"))},
			want: []string{"/etc/chrony.conf (unread)"}, live: "differs in 1 file: /etc/chrony.conf (Reload chronyd.service by a rule of the pool)"},
		"the same file in both, other bytes": {was: []Layer{base, layer(t, e("etc/chrony.conf=old"))}, is: []Layer{base, layer(t, e("etc/chrony.conf=new"))},
			want: []string{"/etc/chrony.conf (content)"}, live: "differs in 1 file: /etc/chrony.conf (Reload chronyd.service by a rule of the pool)"},
		"another mode, another owner": {was: []Layer{base, layer(t, e("etc/chrony.conf=x"), e("etc/motd=x"))},
			is:   []Layer{base, layer(t, e("etc/chrony.conf=x", mode(0o664)), e("etc/motd=x", func(h *tar.Header) { h.Uid = 7 }))},
			want: []string{"/etc/chrony.conf (mode)", "/etc/motd (owner)"}, live: "differs in 2 files: /etc/chrony.conf (Reload chronyd.service by a rule of the pool), /etc/motd (None by a rule of refit's)"},
		"a file is gone that the image's own layer had": {was: []Layer{base, layer(t, e("etc/app.d/a=1"))}, is: []Layer{base, layer(t, e("etc/app.d/a=1")), layer(t, e("etc/app.d/.wh.a"))},
			want: []string{"/etc/app.d/a (removed)"}, why: "/etc/app.d/a: its old content is in layers that were not read"},
		"a file is gone, and both sides are read": {was: []Layer{layer(t, e("etc/app.d/"), e("etc/app.d/a=1"), e("x=1"))}, is: []Layer{layer(t, e("etc/app.d/"), e("x=1"))},
			want: []string{"/etc/app.d/a (removed)"}, live: "differs in 1 file: /etc/app.d/a (Reload chronyd.service by a rule of the pool)"},
		"no rule speaks of it":          {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/unknown=x"))}, want: []string{"/etc/unknown (unread)"}, why: "/etc/unknown: no rule speaks of it but a reboot"},
		"below /usr":                    {was: []Layer{base}, is: []Layer{base, layer(t, e("usr/bin/x=x"))}, want: []string{"/usr/bin/x (unread)"}, why: "/usr/bin/x: outside of /etc only a booted image changes files"},
		"what an update does not apply": {was: []Layer{base}, is: []Layer{base, layer(t, e("var/"), e("var/log/dnf.log=x"), e("tmp/", mode(0o1777)), e("run/x=1"), e("var/lib/.wh.old"))}, live: "has the same contents"},
		"but a link in its place":       {was: []Layer{base}, is: []Layer{base, layer(t, e("tmp->var/tmp"))}, want: []string{"/tmp (unread)"}, why: "/tmp: outside of /etc only"},
		"a unit that a rule speaks of": {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/systemd/system/own.service=[Service]"))},
			want: []string{"/etc/systemd/system/own.service (unread)"}, live: "differs in 1 file: /etc/systemd/system/own.service (Restart own.service by a rule of the pool)"},
		"a link":                    {was: []Layer{base, layer(t, e("etc/app.d/a->x"))}, is: []Layer{base, layer(t, e("etc/app.d/a->y"))}, want: []string{"/etc/app.d/a (target)"}, why: "/etc/app.d/a: it was a symbolic link"},
		"a link becomes a file":     {was: []Layer{base, layer(t, e("etc/app.d/a->x"))}, is: []Layer{base, layer(t, e("etc/app.d/a=y"))}, want: []string{"/etc/app.d/a (kind)"}, why: "it was a symbolic link"},
		"a setuid bit":              {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/app.d/a=y", mode(0o4755)))}, want: []string{"/etc/app.d/a (unread)"}, why: "its mode is 4755"},
		"not everybody may read it": {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/app.d/a=y", mode(0o600)))}, want: []string{"/etc/app.d/a (unread)"}, why: "not every user may read it"},
		"a key":                     {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/app.d/a=-----BEGIN PRIVATE KEY-----"))}, want: []string{"/etc/app.d/a (unread)"}, why: "private key"},
		"accounts":                  {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/passwd=root"))}, want: []string{"/etc/passwd (unread)"}, why: "it is the node's own"},
		"of kubeadm":                {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/kubernetes/x=root"))}, want: []string{"/etc/kubernetes/x (unread)"}, why: "kubeadm's"},
		"attributes": {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/app.d/a=y", func(h *tar.Header) { h.PAXRecords = map[string]string{"SCHILY.xattr.user.x": "1"} }))},
			want: []string{"/etc/app.d/a (unread)"}, why: "extended attributes"},
		"a label of SELinux is the node's to give": {was: []Layer{base, layer(t, e("etc/app.d/a=y"))},
			is: []Layer{base, layer(t, e("etc/app.d/a=y", func(h *tar.Header) { h.PAXRecords = map[string]string{"SCHILY.xattr.security.selinux": "x"} }))}, live: "has the same contents"},
		"a directory of its own": {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/app.d/"))}, want: []string{"/etc/app.d (unread)"}, why: "it is a directory"},
		"a directory with a mode of its own on the way": {was: []Layer{base}, is: []Layer{base, layer(t, e("etc/app.d/", mode(0o700)), e("etc/app.d/a=1"))},
			want: []string{"/etc/app.d (unread)", "/etc/app.d/a (unread)"}, why: "/etc/app.d: it is a directory"},
		"the same directory in both, another mode": {was: []Layer{base, layer(t, e("etc/app.d/"), e("etc/app.d/a=1"))}, is: []Layer{base, layer(t, e("etc/app.d/", mode(0o700)), e("etc/app.d/a=1"))},
			want: []string{"/etc/app.d (mode)"}, why: "/etc/app.d: it was a directory"},
		"a directory is emptied": {was: []Layer{base, layer(t, e("etc/app.d/"), e("etc/app.d/a=1"))}, is: []Layer{base, layer(t, e("etc/app.d/"), e("etc/app.d/.wh..wh..opq"), e("etc/app.d/a=1"))},
			want: []string{"/etc/app.d (emptied)"}, why: "/etc/app.d: it was a directory"},
		"a directory is taken away and made anew": {was: []Layer{base, layer(t, e("etc/app.d/"), e("etc/app.d/a=1"))}, is: []Layer{base, layer(t, e("etc/.wh.app.d")), layer(t, e("etc/app.d/"), e("etc/app.d/a=1"))},
			want: []string{"/etc/app.d (emptied)"}, why: "/etc/app.d: it was a directory"},
		"both empty it": {was: []Layer{base, layer(t, e("etc/app.d/.wh..wh..opq"), e("etc/app.d/a=1"))}, is: []Layer{base, layer(t, e("etc/.wh.app.d")), layer(t, e("etc/app.d/a=1"))}, live: "has the same contents"},
		"what a higher layer takes away was never there": {was: []Layer{base, layer(t, e("etc/app.d/a=1"))},
			is: []Layer{base, layer(t, e("usr/bin/gone=1"), e("etc/app.d/a=1")), layer(t, e("usr/bin/.wh.gone"))}, want: []string{"/usr/bin/gone (removed)"}, why: "/usr/bin/gone"},
		"a hard link is what it links to": {was: []Layer{base, layer(t, e("etc/app.d/a=1"), e("etc/app.d/b=1"))}, is: []Layer{base, layer(t, e("etc/app.d/a=1"), e("etc/app.d/b=>etc/app.d/a"))}, live: "has the same contents"},
		"a hard link into another layer":  {was: []Layer{base, layer(t, e("etc/app.d/b=1"))}, is: []Layer{base, layer(t, e("etc/app.d/b=>etc/app.d/a"))}, want: []string{"/etc/app.d/b (kind)"}, why: "it is a special file"},
		"only the old image has it":       {was: []Layer{base, layer(t, e("etc/app.d/b=1"))}, is: []Layer{base}, want: []string{"/etc/app.d/b (unread)"}, why: "its new content is in layers that were not read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Compare(image(c.was...), image(c.is...), DefaultLimits(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range r.Changes {
				got = append(got, x.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" || r.Stopped || r.Uncompared != "" {
				t.Errorf("%s %+v", diff, r)
			}
			rules := Rules{Pool: chrony}
			live, why := rules.Live(r)
			if live.Summary != c.live || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
				t.Errorf("%q, not because %q", live.Summary, why)
			}
			// With the rules it ends at the first that they do not cover, and says the same.
			r, err = Compare(image(c.was...), image(c.is...), DefaultLimits(), rules.Covers)
			if err != nil || r.Stopped != (why != "") {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
}

// Agents write what the image has, without the files that the configuration has anyway.
func TestLive(t *testing.T) {
	t.Parallel()
	was := image(layer(t, e("etc/app.d/gone=1"), e("etc/motd=old"), e("etc/app.d/mine=1"), e("x=")))
	is := image(layer(t, e("etc/chrony.conf=new\n", func(h *tar.Header) { h.Mode, h.Gid = 0o664, 12 }), e("etc/motd="), e("etc/app.d/mine=2"), e("etc/app.d/"), e("x=")))
	r, err := Compare(was, is, DefaultLimits(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rules := Rules{Pool: chrony, Known: map[string]bool{"/etc/app.d/mine": true}}
	live, why := rules.Live(r)
	want := []model.ConfigFile{
		{Path: "/etc/app.d/gone", Absent: true, Disruption: model.DisruptionReload, Units: []string{"chronyd.service"}},
		{Path: "/etc/chrony.conf", Mode: 0o664, Owner: "root", Group: "12", Data: []byte("new\n"), Disruption: model.DisruptionReload, Units: []string{"chronyd.service"}},
		{Path: "/etc/motd", Mode: 0o644, Owner: "root", Group: "root", Data: []byte{}, Disruption: model.DisruptionNone},
	}
	if diff := cmp.Diff(want, live.Files); diff != "" || why != "" {
		t.Error(diff, why)
	}
	for name, x := range map[string]Result{
		"too many files":  {Changes: many(MaxFiles + 1)},
		"it was stopped":  {Stopped: true},
		"it is not known": {Uncompared: "too large"},
	} {
		if live, why := rules.Live(x); why == "" || live.Files != nil {
			t.Errorf("%s: %+v", name, live)
		}
	}
	if live, why := rules.Live(Result{Changes: many(MaxFiles)}); why != "" || len(live.Files) != MaxFiles || !strings.Contains(live.Summary, "and 27 more") {
		t.Error(why, live.Summary)
	}
}

func many(n int) (out []Change) {
	for i := range n {
		out = append(out, Change{Path: fmt.Sprintf("/etc/motd.d/%03d", i), What: []string{"added"}, Was: Side{Presence: Absent}, Is: Side{There, Entry{Kind: File, Mode: 0o644}}})
	}
	return out
}

// The reading is bounded, ends early, and believes nothing that is not as its digest says.
func TestBounds(t *testing.T) {
	t.Parallel()
	base := sealed("base")
	rules := Rules{Pool: chrony}
	opened := false
	never := layer(t, e("etc/chrony.conf=1"))
	never.Open = func() (io.ReadCloser, error) { opened = true; return nil, errors.New("away") }
	mismatch := layer(t, e("etc/chrony.conf=1"))
	mismatch.Digest = "sha256:" + strings.Repeat("0", 64)
	smaller := layer(t, e("etc/chrony.conf="+strings.Repeat("x", 4096)))
	smaller.Size = 10
	big := tarOf(t, e("etc/chrony.conf="+strings.Repeat("x", 4096)))
	cut := plain(big)
	cut.Open = opens(big[:1024])
	lim := Limits{Bytes: 64 << 10, Unpacked: 32 << 10, Entries: 4, File: 16, Kept: 20}
	for name, c := range map[string]struct {
		was, is Image
		says    string
	}{
		"larger than may be read":  {image(base), image(base, sealed("other")), "have 500 MB, and at most 0 MB"},
		"a size that cannot be":    {image(base), image(base, Layer{Digest: "sha256:x", Size: -1}), "which cannot be"},
		"a size of everything":     {image(base, Layer{Digest: "sha256:y", Size: 1<<63 - 1}), image(base, Layer{Digest: "sha256:x", Size: 1<<63 - 1}), "which cannot be"},
		"too many entries":         {image(base), image(base, layer(t, e("a/"), e("b/"), e("c/"), e("d/"), e("e/"))), "more than 4 entries"},
		"it unpacks to more":       {image(base), image(base, zipped(t, e("etc/chrony.conf="+strings.Repeat("x", 40<<10)))), "unpack to more than"},
		"it has more than it says": {image(base), image(base, plain(tarOf(t, e("etc/a="+strings.Repeat("x", 80<<10)))), smaller), "layers that differ"},
		"other bytes":              {image(base), image(base, mismatch), "is not what its digest says"},
		"cut off":                  {image(base), image(base, cut), "cannot be read"},
		"another kind of digest":   {image(base), image(base, Layer{Digest: "sha512:x", Open: opens(nil)}), "another kind"},
		"another kind of layer":    {image(base), image(base, Layer{Digest: "sha256:x", MediaType: "x/squashfs", Open: opens(nil)}), "media type"},
		"a way out":                {image(base), image(base, layer(t, e("etc/../../usr/bin/x=1"))), "which no image should have"},
		"a link that is a way out": {image(base), image(base, layer(t, e("etc/a=>../b"))), "which no image should have"},
		"a name without end":       {image(base), image(base, layer(t, e(strings.Repeat("x/", 3000)+"x=1"))), "has a path of"},
		"a mark without a name":    {image(base), image(base, layer(t, e("etc/.wh."))), "names nothing that can be removed"},
		"below a file":             {image(base), image(base, layer(t, e("etc/app.d/a=1"), e("etc/app.d/a/b=1"))), "which is no directory"},
		"gzip that is none":        {image(base), image(base, Layer{Digest: "sha256:x", MediaType: "x+gzip", Size: 5, Open: opens([]byte("hello"))}), "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Compare(c.was, c.is, lim, rules.Covers)
			if err != nil || !strings.Contains(r.Uncompared, c.says) || r.Same() {
				t.Errorf("%+v %v", r, err)
			}
			if live, why := rules.Live(r); why == "" || live.Files != nil {
				t.Error("it is taken for known")
			}
		})
	}
	// The first file that is not covered ends the comparison: lower layers are not read.
	r, err := Compare(image(base), image(base, never, layer(t, e("etc/chrony.conf=2"), e("usr/bin/x=1"), e("etc/motd=1"))), DefaultLimits(), rules.Covers)
	if err != nil || !r.Stopped || opened || len(r.Changes) != 1 || r.Changes[0].Path != "/usr/bin/x" {
		t.Errorf("%+v %v", r, err)
	}
	// An unreachable registry is an error, and no difference.
	if _, err := Compare(image(base), image(base, never), DefaultLimits(), rules.Covers); err == nil || !opened {
		t.Error("away is taken for an answer", err)
	}
	// A file that is too large for agents needs a boot.
	r, err = Compare(image(base), image(base, layer(t, e("etc/chrony.conf="+strings.Repeat("x", 17)))), lim, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, why := rules.Live(r); !strings.Contains(why, "it has 17 bytes") {
		t.Error(why)
	}
}

func zipped(t fataler, entries ...entry) Layer {
	raw := tarOf(t, entries...)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return Layer{Digest: model.DigestOf(b.Bytes()), DiffID: model.DigestOf(raw), MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Size: int64(b.Len()), Open: opens(b.Bytes())}
}

// However a layer is packed, it is the same; a shared one is known by its tar too.
func TestPacked(t *testing.T) {
	t.Parallel()
	entries := []entry{e("etc/chrony.conf=1"), e("usr/bin/x=1")}
	raw := tarOf(t, entries...)
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	small := w.EncodeAll(raw, nil)
	z := Layer{Digest: model.DigestOf(small), MediaType: "application/vnd.oci.image.layer.v1.tar+zstd", Size: int64(len(small)), Open: opens(small)}
	for name, l := range map[string]Layer{"gzip": zipped(t, entries...), "zstd": z} {
		if r, err := Compare(image(plain(raw)), image(l), DefaultLimits(), nil); err != nil || !r.Same() || r.Read == 0 && name == "zstd" {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
	if r, err := Compare(image(plain(raw)), image(zipped(t, entries...)), DefaultLimits(), nil); err != nil || r.Shared != 1 || r.Read != 0 {
		t.Errorf("%+v %v", r, err)
	}
	// What hosts read of the configuration counts, all else of it does not.
	was, is := image(), image()
	was.Labels, is.Labels = map[string]string{"ostree.bootable": "1", "version": "1"}, map[string]string{"containers.bootc": "1", "version": "2", "ostree.bootable": "1"}
	r, err := Compare(was, is, DefaultLimits(), Rules{}.Covers)
	if err != nil || !r.Stopped || len(r.Changes) != 1 || r.Changes[0].Path != "label containers.bootc" {
		t.Errorf("%+v %v", r, err)
	}
	is.Labels, is.Platform = was.Labels, "linux/arm64"
	if r, err := Compare(was, is, DefaultLimits(), Rules{}.Covers); err != nil || !r.Stopped {
		t.Errorf("%+v %v", r, err)
	}
}
