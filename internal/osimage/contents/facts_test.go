package contents

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
)

// osLayers are those of an image that nodes can boot: a base, and what makes it a node.
func osLayers() [][]entry {
	return [][]entry{
		{e("usr/"), e("usr/lib/"), e("bin->usr/bin"), e("sbin->usr/sbin"), e("lib->usr/lib"), e("usr/lib/systemd/systemd=elf"), e("usr/sbin/init->../lib/systemd/systemd"),
			e("usr/lib/modules/6.12.1/vmlinuz=kernel"), e("usr/lib/modules/6.12.1/initramfs.img=initramfs"), e("usr/lib/os-release=ID=sim\nVERSION_ID=\"9\"\n"), e("etc/os-release->../usr/lib/os-release")},
		{e("usr/bin/kubelet=elf"), e("usr/lib/systemd/system/kubelet.service=[Service]"), e("usr/bin/containerd=elf"), e("lib/systemd/system/containerd.service=[Service]"),
			e("var/lib/dpkg/status=Package: vim\nStatus: install ok installed\nVersion: 9\n\nPackage: kubelet\nStatus: install ok installed\nVersion: 1.36.3-1.1\n")},
		{e("usr/local/bin/refit-agent=elf"), e("etc/systemd/system/refit-agent.service=[Service]")},
	}
}

var osLabels = map[string]string{osimage.LabelBootc: "1"}

// writeLayout writes an OCI layout with one image into a directory.
func writeLayout(t *testing.T, platform string, labels map[string]string, layers ...Layer) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(mediaType string, b []byte) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digestOfBytes(b), Size: int64(len(b))}
		if err := os.WriteFile(filepath.Join(dir, "blobs/sha256", d.Digest.Encoded()), b, 0o644); err != nil {
			t.Fatal(err)
		}
		return d
	}
	js := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var c ocispec.Image
	var m ocispec.Manifest
	c.OS, c.Architecture, _ = strings.Cut(platform, "/")
	c.Config.Labels = labels
	for _, l := range layers {
		from, err := l.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		m.Layers = append(m.Layers, put(l.MediaType, b))
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digestOfBytes([]byte(l.DiffID)))
	}
	m.SchemaVersion, m.MediaType = 2, ocispec.MediaTypeImageManifest
	m.Config = put(ocispec.MediaTypeImageConfig, js(c))
	if err := oci.SaveIndex(dir, put(ocispec.MediaTypeImageManifest, js(m)), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lintLayout reads a layout as `refit image lint oci:DIR` does.
func lintLayout(t *testing.T, dir string, pool osimage.PoolFacts) ([]osimage.ImageFacts, []string) {
	t.Helper()
	root, err := oci.OpenSingle(dir)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := ReadAllFacts(t.Context(), root, FactsLimits(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range osimage.Admit(facts, pool) {
		say := f.Reason
		if f.Warning {
			say += " (warning)"
		}
		if f.Message == "" || f.Fix == "" {
			t.Errorf("%s has no message or no fix", f.Reason)
		}
		out = append(out, say)
	}
	return facts, out
}

// One image for each refusal, next to one without a finding.
func TestFindingOfEachImage(t *testing.T) {
	t.Parallel()
	node := osimage.PoolFacts{Platforms: []string{"linux/amd64"}, APIServer: "v1.36.3", BootFree: 1 << 30, SysrootFree: 20 << 30, Policy: model.SignaturePolicyAccepts}
	without := func(names ...string) []entry {
		var out []entry
		for _, n := range names {
			dir, base := filepath.Split(n)
			out = append(out, e(dir+".wh."+base+"="))
		}
		return out
	}
	enforcing := func(p *osimage.PoolFacts) { p.Enforcing = []string{"ostree"} }
	policy := func(config string) []entry {
		return []entry{e("etc/selinux/config=" + config), e("etc/selinux/semanage.conf=x"), e("etc/selinux/targeted/contexts/files/file_contexts=/.* system_u:object_r:usr_t:s0\n")}
	}
	const on, object = "SELINUX=enforcing\nSELINUXTYPE=targeted\n", "sysroot/ostree/repo/objects/ab/cd.file"
	unversioned := without("var/lib/dpkg/status")
	for name, c := range map[string]struct {
		platform string
		labels   map[string]string
		layer    []entry
		pool     func(*osimage.PoolFacts)
		want     []string
	}{
		"a good one":                      {},
		"another architecture":            {platform: "linux/arm64", want: []string{osimage.ReasonArchitecture}},
		"no label":                        {labels: map[string]string{}, want: []string{osimage.ReasonNotBootable}},
		"bound images":                    {layer: []entry{e("usr/lib/bootc/bound-images.d/db.container->../../../share/containers/systemd/db.container")}, want: []string{osimage.ReasonBound}},
		"bound images that were removed":  {layer: without("usr/lib/bootc/bound-images.d")},
		"bound images that hosts have":    {labels: map[string]string{osimage.LabelBootc: "1", osimage.LabelHostProvides: "bound-images"}, layer: []entry{e("usr/lib/bootc/bound-images.d/db.image->/usr/share/db.image")}},
		"a whole OS for systemd-sysext":   {pool: func(p *osimage.PoolFacts) { p.Drivers = []string{"sysext"} }, want: []string{osimage.ReasonNotExtension}},
		"an extension for systemd-sysext": {layer: []entry{e("usr/lib/extension-release.d/extension-release.tool=ID=_any\n")}, pool: func(p *osimage.PoolFacts) { p.Drivers = []string{"sysext"} }},
		"no kernel":                       {layer: without("usr/lib/modules"), want: []string{osimage.ReasonKernel}},
		"two kernels":                     {layer: []entry{e("lib/modules/6.13.0/vmlinuz=k"), e("lib/modules/6.13.0/initramfs.img=i")}, want: []string{osimage.ReasonKernel}},
		"no initramfs":                    {layer: without("usr/lib/modules/6.12.1/initramfs.img"), want: []string{osimage.ReasonInitramfs}},
		"no systemd":                      {layer: without("usr/lib/systemd/systemd"), want: []string{osimage.ReasonInit}},
		"another init":                    {layer: []entry{e("sbin/init->../bin/busybox")}, want: []string{osimage.ReasonInit}},
		"no kubelet":                      {layer: without("bin/kubelet"), want: []string{osimage.ReasonKubelet}},
		"a kubelet that is too new":       {pool: func(p *osimage.PoolFacts) { p.APIServer = "v1.35.9" }, want: []string{osimage.ReasonKubeletSkew}},
		"a kubelet that is too old":       {pool: func(p *osimage.PoolFacts) { p.APIServer = "1.40.0" }, want: []string{osimage.ReasonKubeletSkew}},
		"a kubelet of three minors":       {pool: func(p *osimage.PoolFacts) { p.APIServer = "1.39.0" }},
		"an unknown kubelet":              {layer: unversioned, want: []string{osimage.ReasonKubeletUnknown + " (warning)"}},
		"a kubelet of a label":            {layer: unversioned, labels: map[string]string{osimage.LabelBootc: "1", osimage.LabelKubelet: "v1.37.0"}, want: []string{osimage.ReasonKubeletSkew}},
		"no SELinux where it enforces":    {pool: enforcing, want: []string{osimage.ReasonSELinux}},
		"SELinux where it enforces":       {layer: policy(on), pool: enforcing},
		"SELinux that is off":             {layer: policy("SELINUX=disabled\n"), pool: enforcing, want: []string{osimage.ReasonSELinux}},
		"another policy than it names":    {layer: policy("SELINUX=enforcing\nSELINUXTYPE=mls\n"), pool: enforcing, want: []string{osimage.ReasonSELinux}},
		"links to objects of ostree":      {layer: []entry{e(object + "=" + on), e("etc/selinux/config=>" + object)}, pool: enforcing},
		"no runtime":                      {layer: without("usr/bin/containerd"), want: []string{osimage.ReasonRuntime}},
		"no agent":                        {layer: without("usr/local/bin/refit-agent"), want: []string{osimage.ReasonImageAgent + " (warning)"}},
		"no agent, and nodes lose theirs": {layer: without("usr/local/bin/refit-agent"), pool: func(p *osimage.PoolFacts) { p.LoseAgent = []string{"n1"} }, want: []string{osimage.ReasonImageAgent}},
		"no agent, transient /etc":        {layer: append(without("usr/local/bin/refit-agent"), e("usr/lib/ostree/prepare-root.conf=[etc]\ntransient = true\n")), want: []string{osimage.ReasonImageAgent}},
		"the agent outside":               {layer: []entry{e("usr/.wh.local="), e("usr/local->../var/usrlocal")}},
		"no unit, transient /etc":         {layer: append(without("usr/lib/systemd/system/kubelet.service"), e("usr/lib/ostree/prepare-root.conf=[etc]\ntransient = true\n")), want: []string{osimage.ReasonUnit}},
		"no unit":                         {layer: without("usr/lib/systemd/system/kubelet.service"), want: []string{osimage.ReasonUnit + " (warning)"}},
		"a masked unit":                   {layer: []entry{e("etc/systemd/system/containerd.service->/dev/null")}, want: []string{osimage.ReasonUnit}},
		"a full /boot":                    {pool: func(p *osimage.PoolFacts) { p.BootFree = 3 }, want: []string{osimage.ReasonRoom}},
		"a full /boot with the kernel":    {pool: func(p *osimage.PoolFacts) { p.BootFree, p.Kernels = 3, []string{"6.12.1"} }},
		"a full /sysroot":                 {pool: func(p *osimage.PoolFacts) { p.SysrootFree = 100 }, want: []string{osimage.ReasonRoom}},
		"a policy that rejects":           {pool: func(p *osimage.PoolFacts) { p.Policy = model.SignaturePolicyRejects }, want: []string{osimage.ReasonSignaturePolicy}},
		"a policy that is passed by":      {pool: func(p *osimage.PoolFacts) { p.Policy = model.SignaturePolicyBypassed }, want: []string{osimage.ReasonSignaturePolicy}},
		"parts that hosts have": {labels: map[string]string{osimage.LabelBootable: "true", osimage.LabelHostProvides: "kubelet, runtime,refit-agent,systemd,initramfs,kernel"}, layer: append(without("usr/local", "usr/bin", "usr/lib/systemd"),
			without("usr/lib/modules/6.12.1/initramfs.img")...)},
		"nothing of a node": {layer: []entry{e(".wh..wh..opq=")}, want: []string{osimage.ReasonKernel, osimage.ReasonInit, osimage.ReasonKubelet, osimage.ReasonRuntime, osimage.ReasonImageAgent + " (warning)"}},
		"an extension":      {labels: map[string]string{}, layer: []entry{e(".wh..wh..opq="), e("usr/lib/extension-release.d/extension-release.tool=ID=_any")}, pool: func(p *osimage.PoolFacts) { p.Drivers = []string{"sysext"} }},
		"hosts of packages": {platform: "linux/arm64", pool: func(p *osimage.PoolFacts) { p.Drivers = []string{"package"} }},
		"plain ostree":      {labels: map[string]string{}, pool: func(p *osimage.PoolFacts) { p.Drivers = []string{"ostree"} }, want: []string{osimage.ReasonNotBootable + " (warning)"}},
		"a bad layer":       {layer: []entry{e("usr/../../etc/shadow=x")}, want: []string{osimage.ReasonUnreadable}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var layers []Layer
			for _, l := range osLayers() {
				layers = append(layers, zipped(t, l...))
			}
			if c.layer != nil {
				layers = append(layers, zipped(t, c.layer...))
			}
			platform, labels, pool := "linux/amd64", osLabels, node
			if c.platform != "" {
				platform = c.platform
			}
			if c.labels != nil {
				labels = c.labels
			}
			if c.pool != nil {
				c.pool(&pool)
			}
			facts, got := lintLayout(t, writeLayout(t, platform, labels, layers...), pool)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if f := facts[0]; f.Read > f.Packed || f.Read == 0 || f.Problem == "" && f.Read != f.Packed {
				t.Errorf("%d of %d bytes read: packed layers are read once, to a bad one", f.Read, f.Packed)
			}
		})
	}
}

// What is read of an image, and how much: of layers on disk that are not packed the headers alone.
func TestFacts(t *testing.T) {
	t.Parallel()
	want := osimage.ImageFacts{Platform: "linux/amd64", OS: "sim 9", Bootable: true, Kernels: []osimage.Kernel{{Version: "6.12.1", Initramfs: true, Size: 15}}, Kubelet: "usr/bin/kubelet", KubeletVersion: "1.36.3",
		Runtime: "usr/bin/containerd", Agent: "usr/local/bin/refit-agent", Systemd: true, WithoutSELinux: true, Units: []string{"containerd.service", "kubelet.service", "refit-agent.service"}}
	var packed, plain []Layer
	big := e("usr/share/large=" + strings.Repeat("0123456789abcdef", 1<<16))
	for _, l := range osLayers() {
		packed, plain = append(packed, zipped(t, append(l, big)...)), append(plain, layer(t, append(l, big)...))
	}
	for name, layers := range map[string][]Layer{"packed": packed, "plain": plain} {
		all, _ := lintLayout(t, writeLayout(t, "linux/amd64", osLabels, layers...), osimage.PoolFacts{})
		got := all[0]
		switch {
		case got.Unpacked < 3<<20 || got.Packed <= 0:
			t.Errorf("%s: %d bytes unpacked, %d packed", name, got.Unpacked, got.Packed)
		case name == "packed" && got.Read != got.Packed:
			t.Errorf("%d of %d bytes read: packed layers are read once", got.Read, got.Packed)
		case name == "plain" && got.Read > 64<<10:
			t.Errorf("%d of %d bytes read: contents of files were read", got.Read, got.Packed)
		}
		got.Packed, got.Unpacked, got.Read = 0, 0, 0
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	// A known base costs nothing.
	keep := &Tables{}
	if f, err := ReadFacts(image(packed[:2]...), FactsLimits(), keep); err != nil || f.Read == 0 {
		t.Fatal(err, f.Read)
	}
	never := slices.Clone(packed)
	for i := range never[:2] {
		never[i].Open = sealed("base").Open
	}
	if f, err := ReadFacts(image(never...), FactsLimits(), keep); err != nil || f.Read != packed[2].Size || f.Kubelet == "" || f.Agent == "" {
		t.Errorf("%+v %v", f, err)
	}
}

// A whiteout removes the policy of a lower layer, at each directory above its file.
func TestRemovedSELinuxPolicy(t *testing.T) {
	t.Parallel()
	policy := layer(t, e("etc/selinux/config=SELINUX=enforcing\n"), e("etc/selinux/targeted/contexts/files/file_contexts=x"))
	for removed, want := range map[string]bool{"etc/.wh.selinux": true, "etc/selinux/.wh.config": true, "etc/selinux/.wh.targeted": true, "etc/selinux/targeted/.wh.contexts": true,
		"etc/selinux/targeted/contexts/files/.wh..wh..opq": true, "etc/selinux/targeted/contexts/files/.wh.file_contexts": true, "etc/selinux/.wh.mls": false, "etc/selinux/targeted/contexts/.wh.users": false} {
		f, err := ReadFacts(image(policy, layer(t, e(removed+"="))), FactsLimits(), nil)
		if err != nil || f.Problem != "" || f.WithoutSELinux != want {
			t.Errorf("%s: %v %q %v", removed, f.WithoutSELinux, f.Problem, err)
		}
	}
}

// Where packages say which kubelet they brought.
func TestKubeletVersions(t *testing.T) {
	t.Parallel()
	rpm := "SQLite format 3\x00" + strings.Repeat("page", 80<<10) + "\x00\x00\x01C\x00kubelet\x001.36.3\x00150500.1.1\x00" + strings.Repeat("x", 300<<10)
	object := "sysroot/ostree/repo/objects/ab/cd.file"
	for name, c := range map[string]struct {
		want    string
		entries []entry
	}{
		"dpkg":                  {"1.36.3", []entry{e("var/lib/dpkg/status=Package: kubelet\nStatus: install ok installed\nVersion: 0:1.36.3-1.1")}},
		"dpkg, removed":         {"", []entry{e("var/lib/dpkg/status=Package: kubelet\nStatus: deinstall ok config-files\nVersion: 1.36.3-1.1\n\nPackage: a\nStatus: install ok installed\nVersion: 2\n")}},
		"apk":                   {"1.36.3", []entry{e("lib/apk/db/installed=P:vim\nV:9\n\nP:kubelet\nV:1.36.3-r0\n")}},
		"rpm":                   {"1.36.3", []entry{e("usr/share/rpm/rpmdb.sqlite=" + rpm)}},
		"rpm, no database":      {"", []entry{e("usr/share/rpm/rpmdb.sqlite=C\x00kubelet\x001.36.3\x00")}},
		"rpm, object of ostree": {"1.36.3", []entry{e(object + "=" + rpm + strings.Repeat("y", 1<<20)), e("usr/share/rpm/rpmdb.sqlite=>" + object)}},
	} {
		f, err := ReadFacts(image(layer(t, c.entries...)), FactsLimits(), nil)
		if err != nil || f.Problem != "" || f.KubeletVersion != c.want {
			t.Errorf("%s: %q %q %v", name, f.KubeletVersion, f.Problem, err)
		}
	}
}

// k3s and its like bring their own runtime and unit.
func TestSupervisedNode(t *testing.T) {
	t.Parallel()
	f, err := ReadFacts(image(layer(t, e("usr/local/bin/k3s=elf"), e("usr/lib/systemd/system/k3s-agent.service=[Service]"))), FactsLimits(), nil)
	if err != nil || f.Kubelet != "usr/local/bin/k3s" || !f.Supervised {
		t.Fatalf("%+v %v", f, err)
	}
	for _, x := range osimage.Admit([]osimage.ImageFacts{f}, osimage.PoolFacts{}) {
		if slices.Contains([]string{osimage.ReasonKubelet, osimage.ReasonRuntime, osimage.ReasonUnit}, x.Reason) {
			t.Error(x.Message)
		}
	}
}

// Hard links to objects have the objects' sizes; layers replace and remove what is below them.
func TestLayersOverride(t *testing.T) {
	t.Parallel()
	object := "sysroot/ostree/repo/objects/12/34.file"
	size := strings.Repeat("k", largeFile)
	base := layer(t, e(object+"="+size), e("usr/lib/modules/6.1/vmlinuz=>"+object), e("usr/lib/modules/6.1/initramfs.img=i"))
	for name, c := range map[string]struct {
		want []osimage.Kernel
		top  []entry
	}{
		"as it was":                       {[]osimage.Kernel{{Version: "6.1", Initramfs: true, Size: largeFile + 1}}, nil},
		"a removed file":                  {nil, []entry{e("usr/lib/modules/6.1/.wh.vmlinuz=")}},
		"a removed directory":             {nil, []entry{e("usr/lib/modules/.wh.6.1=")}},
		"an emptied directory, one new":   {[]osimage.Kernel{{Version: "6.2", Size: 1}}, []entry{e("usr/lib/modules/6.2/vmlinuz=k"), e("usr/lib/modules/.wh..wh..opq=")}},
		"a file in the directory's place": {nil, []entry{e("usr/lib=x")}},
		"removed and made again":          {[]osimage.Kernel{{Version: "6.1", Size: 1}}, []entry{e("usr/.wh.lib="), e("usr/lib/modules/6.1/vmlinuz=k")}},
		"by the link of /lib":             {nil, []entry{e("lib/modules/6.1/.wh.vmlinuz=")}},
	} {
		f, err := ReadFacts(image(base, layer(t, c.top...)), FactsLimits(), nil)
		if err != nil || f.Problem != "" {
			t.Fatal(name, err, f.Problem)
		}
		if d := cmp.Diff(c.want, f.Kernels); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// Hostile layers are refused, in bounded memory.
func TestHostileLayers(t *testing.T) {
	lim := FactsLimits()
	lim.Entries, lim.Unpacked = 50_000, 256<<20
	raw := func(mediaType string, b []byte) Layer {
		return Layer{Digest: model.DigestOf(b), MediaType: mediaType, Size: int64(len(b)), Open: opens(b)}
	}
	bomb := func(n int64) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zero", Size: n})
		_, _ = io.CopyN(w, zeros{}, n)
		_ = w.Close()
		_ = z.Close()
		return b.Bytes()
	}
	lie := tarOf(t, e("usr/bin/kubelet=x"))
	copy(lie[124:136], "77777777777\x00") // 8 GiB that are not there
	fixChecksum(lie)
	many := make([]entry, 0, maxRecorded+1)
	for i := range maxRecorded + 1 {
		many = append(many, e("usr/lib/modules/"+strings.Repeat("v", i%200)+string(rune('a'+i%26))+"/vmlinuz="))
	}
	deep := strings.Repeat("a/", 3000)
	truncated := zipped(t, e("usr/bin/kubelet=x"))
	for name, c := range map[string]struct {
		layer Layer
		says  string
	}{
		"a huge header":                  {raw(ocispec.MediaTypeImageLayer, append(append(bytes.Clone(paxHeader(1<<30)), bytes.Repeat([]byte("1"), 4<<20)...), make([]byte, 1024)...)), "cannot be read"},
		"a size that is not there":       {raw(ocispec.MediaTypeImageLayer, lie), "unpack to more than 256 MB"},
		"deep paths":                     {layer(t, e(deep+"x=1")), "a path of"},
		"a path that climbs":             {layer(t, e("../../etc/shadow=1")), "which no image should have"},
		"gzip that is none":              {raw(ocispec.MediaTypeImageLayerGzip, []byte("hello, this is no gzip at all")), "cannot be read"},
		"gzip that ends early":           {raw(ocispec.MediaTypeImageLayerGzip, readAll(t, truncated)[:40]), "cannot be read"},
		"zstd that is none":              {raw(ocispec.MediaTypeImageLayerZstd, []byte("hello")), "cannot be read"},
		"a bomb":                         {raw(ocispec.MediaTypeImageLayerGzip, bomb(300<<20)), "unpack to more than 256 MB"},
		"more kernels than there can be": {layer(t, many...), "more than 4096 kernels"},
		"another digest":                 {Layer{Digest: model.DigestOf([]byte("x")), MediaType: truncated.MediaType, Size: truncated.Size, Open: truncated.Open}, "is not what its digest says"},
		"a size below nothing":           {Layer{Digest: model.DigestOf([]byte("x")), Size: -1}, "its layers have more than"},
		"an unknown packing":             {raw("application/x-rar", []byte("x")), "which is not read"},
		"a mark without a name":          {layer(t, e("usr/bin/.wh.=")), "names nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f, err := ReadFacts(image(c.layer), lim, nil)
			runtime.ReadMemStats(&after)
			if err != nil || !strings.Contains(f.Problem, c.says) {
				t.Errorf("%q %v, want %q", f.Problem, err, c.says)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
				t.Errorf("%d MB were allocated", used>>20)
			}
			if found := osimage.Admit([]osimage.ImageFacts{f}, osimage.PoolFacts{}); len(found) != 1 || found[0].Reason != osimage.ReasonUnreadable {
				t.Errorf("%+v", found)
			}
		})
	}
	// Nor follows anything from bytes that a node altered, wherever in a layer; a layer that is
	// malformed as it should be is refused.
	from := readAll(t, zipped(t, e("usr/bin/kubelet="+strings.Repeat("x", 4096))))
	for at := range from {
		b := bytes.Clone(from)
		b[at] ^= 0x55
		l := Layer{Digest: model.DigestOf(from), MediaType: ocispec.MediaTypeImageLayerGzip, Size: int64(len(from)), Unverified: true, Open: opens(b)}
		if f, err := ReadFacts(image(l), lim, nil); err == nil || f.Problem != "" {
			t.Fatalf("byte %d: %+v %v", at, f, err)
		}
	}
	torn := raw(ocispec.MediaTypeImageLayerGzip, from[:len(from)-9])
	torn.Unverified = true
	if f, err := ReadFacts(image(torn), lim, nil); err != nil || !strings.Contains(f.Problem, "cannot be read") {
		t.Errorf("%+v %v", f, err)
	}
	// A registry that does not answer is an error, and no verdict.
	if _, err := ReadFacts(image(sealed("away")), lim, nil); err == nil {
		t.Error("away is taken for an answer")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func readAll(t *testing.T, l Layer) []byte {
	t.Helper()
	from, err := l.Open()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func digestOfBytes(b []byte) digest.Digest { return digest.FromBytes(b) }

// paxHeader is a header of extended attributes that says that they have so many bytes.
func paxHeader(size int64) []byte {
	b := make([]byte, 512)
	copy(b, "PaxHeaders/x")
	copy(b[100:], "0000644\x000000000\x000000000\x00")
	copy(b[124:], fmt.Sprintf("%011o\x00", size))
	copy(b[136:], "00000000000\x00")
	b[156] = 'x'
	copy(b[257:], "ustar\x0000")
	fixChecksum(b)
	return b
}

func fixChecksum(b []byte) {
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// Any bytes of a layer give facts or a Problem, and the same each time.
func FuzzReadFacts(f *testing.F) {
	for _, l := range osLayers() {
		f.Add(tarOf(f, l...), false)
		f.Add(tarOf(f, l...), true)
	}
	f.Add([]byte("SQLite format 3\x00"), false)
	lim := Limits{Bytes: 1 << 20, Unpacked: 1 << 20, Entries: 1000, File: 1 << 10, Kept: 1 << 12}
	f.Fuzz(func(t *testing.T, b []byte, seeks bool) {
		l := plain(b)
		if seeks {
			l.Open = func() (io.ReadCloser, error) { return seekableBytes{bytes.NewReader(b)}, nil }
		}
		first, err := ReadFacts(image(l), lim, nil)
		again, err2 := ReadFacts(image(l), lim, nil)
		if err != nil || err2 != nil || cmp.Diff(first, again) != "" {
			t.Fatal(err, err2, cmp.Diff(first, again))
		}
		osimage.Admit([]osimage.ImageFacts{first}, osimage.PoolFacts{APIServer: "v1.36.3", BootFree: 1, SysrootFree: 1})
	})
}

type seekableBytes struct{ *bytes.Reader }

func (seekableBytes) Close() error { return nil }
