package bundlestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// tool runs a program of the packages that `make deps` installs; without it the test is skipped.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			t.Skipf("%s is not installed: make deps", name)
		}
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// formats make an image of a directory with the standard tools.
var formats = map[string]func(t *testing.T, dir, image string){
	"FAT": func(t *testing.T, dir, image string) {
		empty(t, image, 34<<20)
		tool(t, "mkfs.vfat", "-F", "32", "-s", "1", "-n", "STICK", image)
		list, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		tool(t, "mcopy", append(append([]string{"-s", "-Q", "-i", image}, list...), "::/")...)
	},
	"exFAT": func(t *testing.T, dir, image string) {
		if _, err := os.Stat("/dev/fuse"); err != nil {
			t.Skip("mounting exFAT needs /dev/fuse")
		}
		empty(t, image, 8<<20)
		tool(t, "mkfs.exfat", "-L", "STICK", image)
		mount := t.TempDir()
		tool(t, "mount.exfat-fuse", attach(t, image), mount)
		err := os.CopyFS(mount, os.DirFS(dir))
		tool(t, "umount", mount)
		if err != nil {
			t.Fatal(err)
		}
	},
	"ISO 9660": func(t *testing.T, dir, image string) {
		tool(t, "xorriso", "-as", "mkisofs", "-quiet", "-r", "-J", "-V", "STICK", "-o", image, dir)
	},
	"ext4": func(t *testing.T, dir, image string) {
		empty(t, image, 16<<20)
		tool(t, "mke2fs", "-t", "ext4", "-q", "-F", "-L", "STICK", "-d", dir, image)
	},
	"ext2": func(t *testing.T, dir, image string) {
		empty(t, image, 16<<20)
		tool(t, "mke2fs", "-t", "ext2", "-b", "1024", "-q", "-F", "-L", "STICK", "-d", dir, image)
	},
}

func empty(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

// attach makes a loop device of a file. It is detached at the end of the test.
func attach(t *testing.T, image string, options ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a loop device")
	}
	out, err := exec.Command("losetup", append(options, "--find", "--show", image)...).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device here: %v: %s", err, out)
	}
	path := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", path).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", path, err, out)
		}
	})
	return path
}

// mediumImage makes an image with these files and returns its path.
func mediumImage(t *testing.T, kind string, files map[string][]byte) string {
	t.Helper()
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "image")
	for name, data := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	formats[kind](t, dir, path)
	return path
}

func fileSystem(t *testing.T, kind string, files map[string][]byte) []byte {
	t.Helper()
	raw, err := os.ReadFile(mediumImage(t, kind, files))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// partitioned puts an image into partition 2 of a disk with an MBR.
func partitioned(image []byte) []byte {
	const start = 1 << 20
	disk := make([]byte, start, start+len(image))
	e := disk[446+16:]
	e[4] = 0x0C
	for i, v := range []int{start / 512, len(image) / 512} {
		e[8+4*i], e[9+4*i], e[10+4*i], e[11+4*i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	disk[510], disk[511] = 0x55, 0xAA
	return append(disk, image...)
}

func version(t *testing.T, v string) []byte {
	t.Helper()
	s := bundletest.Tiny()
	s.Version = v
	return bundletest.Bytes(t, s, bundletest.Key(1))
}

// checkCopies copies a bundle from a set of media in the way the agent does, and verifies it.
func checkCopies(t *testing.T, s *MediaSet, raw []byte) {
	t.Helper()
	h := header(t, raw)
	p := s.With(h.Digest)
	if p == nil {
		t.Fatalf("bundle %s was not found: %+v", h.Digest, s.Describe(Policy{}, nil))
	}
	f, err := p.Reader(nil)
	if err != nil {
		t.Fatal(err)
	}
	shelf, err := library(t, t.TempDir()).Add(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), f, shelf, all(h), func(int64) {}); err != nil {
		t.Error(err)
	}
	if err := bundlereader.Verify(t.Context(), f, nil); err != nil {
		t.Error(err)
	}
	if got, err := p.RawHeader(); err != nil || !bytes.Equal(got, h.Raw) {
		t.Errorf("header of %d bytes: %v", len(got), err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(f.Unverified(), 0, int64(len(raw)))); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("%d bytes, want %d, or others: %v", len(got), len(raw), err)
	}
}

func messages(s *MediaSet) (out []string) {
	for _, m := range s.Describe(Policy{Refit: "9.0.0"}, func(string) Availability { return Availability{} }) {
		out = append(out, fmt.Sprintf("%s %s %s %s", m.Device, m.State, m.Version, m.Message))
	}
	return out
}

// A person copies bundles to an ordinary stick and plugs it in: real loop devices, and the
// process without privileges.
func TestBundlesOnOrdinaryMedia(t *testing.T) {
	if raceDetector {
		t.Skip("the unprivileged reader has not the memory that the race detector needs")
	}
	one, two := version(t, "1.2.3"), version(t, "1.2.4")
	files := map[string][]byte{"any name.txt": one, "dir/two": two, "README": []byte("Plug it in."), "photo": bytes.Repeat([]byte("photo"), 20000)}
	for kind := range formats {
		for _, table := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s partitioned=%v", kind, table), func(t *testing.T) {
				image := mediumImage(t, kind, files)
				place := "#"
				if table {
					raw, err := os.ReadFile(image)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(image, partitioned(raw), 0o600); err != nil {
						t.Fatal(err)
					}
					place = "#2:"
				}
				device := attach(t, image)
				s := MediaSet{Contents: UnprivilegedContents, wait: time.Minute}
				defer s.Close()
				now := []media.Medium{{Path: device, Device: true, Key: "1", Expected: true}}
				if !s.Scan(now) {
					t.Fatalf("no bundle: %v", messages(&s))
				}
				checkCopies(t, &s, one)
				checkCopies(t, &s, two)
				got := messages(&s)
				if len(got) != 2 || !strings.HasPrefix(got[0], device+place+"any name.txt Found 1.2.3") || !strings.HasPrefix(got[1], device+place+"dir/two Found 1.2.4") {
					t.Errorf("%q", got)
				}
				if s.Scan(now) {
					t.Error("an unchanged stick was read as a new one")
				}
				if f, err := bundlereader.OpenPath(device + place + "dir/two"); err != nil {
					t.Errorf("the path of the status does not open it: %v", err)
				} else {
					f.Close()
				}
			})
		}
	}
}

// Each piece of a fragmented file is one read, and no more is read than the file has.
func TestAFragmentedBundle(t *testing.T) {
	t.Parallel()
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	empty(t, image, 34<<20)
	tool(t, "mkfs.vfat", "-F", "32", "-s", "1", "-n", "STICK", image)
	fill := []string{"-i", image}
	for i := range 330 {
		name := filepath.Join(dir, fmt.Sprintf("fill%03d", i))
		if err := os.WriteFile(name, make([]byte, 100<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		fill = append(fill, name)
	}
	tool(t, "mcopy", append(fill[:len(fill)-5:len(fill)-5], "::/")...)
	gaps := []string{"-i", image}
	for i := 0; i < 300; i += 2 {
		gaps = append(gaps, fmt.Sprintf("::/fill%03d", i))
	}
	tool(t, "mdel", gaps...)
	spec := bundletest.Tiny()
	spec.Images[0].Layers = append(spec.Images[0].Layers, noise(5<<20))
	raw := bundletest.Bytes(t, spec)
	bundlePath := filepath.Join(dir, "release")
	if err := os.WriteFile(bundlePath, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, "mcopy", "-i", image, bundlePath, "::/")
	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{raw: content}
	s := setOf(map[string]*device{"/dev/sdb": d})
	if !s.Scan([]media.Medium{plugged("/dev/sdb", "1")}) {
		t.Fatal(messages(s))
	}
	p := s.With(header(t, raw).Digest)
	pieces := len(p.opened.place.Extents)
	if pieces < 30 {
		t.Fatalf("the file has %d pieces: the test does not fragment", pieces)
	}
	f, err := p.Reader(nil)
	if err != nil {
		t.Fatal(err)
	}
	reads, read := d.reads.Load(), d.bytes.Load()
	for n := range f.Header().Chunks.Len() {
		if _, err := f.ReadChunk(n, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n, most := d.reads.Load()-reads, int64(pieces+2*f.Header().Chunks.Len()); n > most {
		t.Errorf("%d reads of the medium, at most %d for %d pieces", n, most, pieces)
	}
	if n := d.bytes.Load() - read; n > int64(len(raw)) {
		t.Errorf("%d bytes read of a bundle of %d", n, len(raw))
	}
	checkCopies(t, s, raw)
}

// noise does not compress and has no repetition.
func noise(n int) []byte {
	b, x := make([]byte, n), uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// What may happen to a stick with a file system while its bundle is in use.
func TestAMediumThatChanges(t *testing.T) {
	t.Parallel()
	one, two := version(t, "1.2.3"), version(t, "1.2.4")
	image, other := fileSystem(t, "FAT", map[string][]byte{"release": one}), fileSystem(t, "FAT", map[string][]byte{"a": make([]byte, 90000), "release": two})
	first, second := header(t, one), header(t, two)
	open := func(t *testing.T) (*MediaSet, *device, *bundlereader.File) {
		t.Helper()
		d := &device{raw: image}
		s := setOf(map[string]*device{"/dev/sdb": d})
		if !s.Scan([]media.Medium{plugged("/dev/sdb", "1")}) {
			t.Fatal(messages(s))
		}
		f, err := s.With(first.Digest).Reader(nil)
		if err != nil {
			t.Fatal(err)
		}
		return s, d, f
	}
	shelf := func(t *testing.T) *Shelf {
		t.Helper()
		sh, err := library(t, t.TempDir()).Add(first)
		if err != nil {
			t.Fatal(err)
		}
		return sh
	}
	t.Run("pulled while it is copied", func(t *testing.T) {
		s, d, f := open(t)
		sh, copied := shelf(t), 0
		err := Copy(t.Context(), f, sh, all(first), func(int64) {
			if copied++; copied == 1 {
				d.err = errors.New("no such device")
			}
		})
		if err == nil || !strings.Contains(err.Error(), "cannot be read any more") || copied != 1 {
			t.Errorf("%d chunks, %v", copied, err)
		}
		s.Fail(s.With(first.Digest), err)
		if s.Scan(nil); len(messages(s)) != 0 {
			t.Errorf("%q", messages(s))
		}
		d.err = nil
		if !s.Scan([]media.Medium{plugged("/dev/sdb", "2")}) {
			t.Fatal("plugged in again it was not found")
		}
		f, err = s.With(first.Digest).Reader(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := Copy(t.Context(), f, sh, all(first), func(int64) {}); err != nil {
			t.Error(err)
		}
	})
	t.Run("swapped while it is copied", func(t *testing.T) {
		s, d, f := open(t)
		d.raw = other
		if err := Copy(t.Context(), f, shelf(t), all(first), func(int64) {}); err == nil || !strings.Contains(err.Error(), "swapped") {
			t.Errorf("%v", err)
		}
		// The kernel did not say so: the key is the same.
		if !s.Scan([]media.Medium{plugged("/dev/sdb", "1")}) || s.With(first.Digest) != nil || s.With(second.Digest) == nil {
			t.Fatalf("%q", messages(s))
		}
		checkCopies(t, s, two)
	})
	t.Run("its allocation table is damaged while it is copied", func(t *testing.T) {
		s, d, f := open(t)
		d.raw = bytes.Clone(image)
		clear(d.raw[512*32 : 512*32+60000])
		if err := Copy(t.Context(), f, shelf(t), all(first), func(int64) {}); err != nil {
			t.Errorf("the agent knows where the file is: %v", err)
		}
		m := plugged("/dev/sdb", "2")
		m.Expected = true
		if s.Scan([]media.Medium{m}); s.With(first.Digest) != nil || len(messages(s)) != 1 || !strings.Contains(messages(s)[0], "root directory: after cluster 2: cluster 0 is outside") {
			t.Errorf("read anew: %q", messages(s))
		}
	})
}

// A bundle that was not copied completely to the stick, and one with a damaged header, are named
// with their file; others on the same stick can be used.
func TestADamagedFileOnAMedium(t *testing.T) {
	t.Parallel()
	good, cut := version(t, "1.2.3"), version(t, "1.2.4")
	d := &device{raw: fileSystem(t, "FAT", map[string][]byte{"good": good, "cut": cut[:len(cut)-700], "header": cut[:2000]})}
	s := setOf(map[string]*device{"/dev/sdb": d})
	s.Scan([]media.Medium{plugged("/dev/sdb", "1")})
	got := messages(s)
	if len(got) != 3 || !strings.HasPrefix(got[0], "/dev/sdb#good Found 1.2.3") ||
		!strings.HasPrefix(got[1], "/dev/sdb#cut Unreadable") || !strings.Contains(got[1], "not copied completely") ||
		!strings.HasPrefix(got[2], "/dev/sdb#header Unreadable") || !strings.Contains(got[2], "bundle is damaged") {
		t.Fatalf("%q", got)
	}
	if s.With(header(t, cut).Digest) != nil {
		t.Error("a bundle that is cut off is used")
	}
	checkCopies(t, s, good)
	before := d.bytes.Load()
	s.Scan([]media.Medium{plugged("/dev/sdb", "1")})
	if n := d.bytes.Load() - before; n > comparedBytes {
		t.Errorf("%d bytes of an unchanged stick were read again", n)
	}
}

// Two sticks at once, with the same bundle and with another one: the second copy stands in for
// the first.
func TestTwoMediaAtOnce(t *testing.T) {
	t.Parallel()
	one, two := version(t, "1.2.3"), version(t, "1.2.4")
	s := setOf(map[string]*device{
		"/dev/sdb": {raw: fileSystem(t, "FAT", map[string][]byte{"release": one})},
		"/dev/sdc": {raw: fileSystem(t, "ext4", map[string][]byte{"release": one, "next": two})},
	})
	s.Scan([]media.Medium{plugged("/dev/sdb", "1"), plugged("/dev/sdc", "1")})
	checkCopies(t, s, two)
	p := s.With(header(t, one).Digest)
	s.Fail(p, errors.New("bad sector"))
	if again := s.With(header(t, one).Digest); again == nil || again.Path == p.Path {
		t.Fatal("the other copy is not used")
	}
	checkCopies(t, s, one)
}

// A partition is not read next to its disk, unless the disk's reader did not know it.
func TestPartitionsAreReadOnce(t *testing.T) {
	t.Parallel()
	raw := version(t, "1.2.3")
	image := fileSystem(t, "FAT", map[string][]byte{"release": raw})
	part := func(key string) media.Medium {
		return media.Medium{Path: "/dev/sdb2", Device: true, Key: key, Disk: "/dev/sdb", Partition: 2, Expected: true}
	}
	devices := map[string]*device{"/dev/sdb": {raw: partitioned(image)}, "/dev/sdb2": {raw: image}}
	s := setOf(devices)
	s.Scan([]media.Medium{plugged("/dev/sdb", "1"), part("1")})
	if got := messages(s); len(got) != 1 || !strings.HasPrefix(got[0], "/dev/sdb#2:release Found") || devices["/dev/sdb2"].reads.Load() != 0 {
		t.Errorf("%q, %d reads of the partition", got, devices["/dev/sdb2"].reads.Load())
	}
	// The disk is in use, because another partition of it is mounted.
	s.Scan([]media.Medium{part("1")})
	if got := messages(s); len(got) != 1 || !strings.HasPrefix(got[0], "/dev/sdb2#release Found") {
		t.Errorf("without the disk: %q", got)
	}
	// A raw bundle in a partition has no file system.
	devices["/dev/sdb"].raw, devices["/dev/sdb2"].raw = partitioned(raw), raw
	s.Scan([]media.Medium{plugged("/dev/sdb", "2"), part("2")})
	if got := messages(s); len(got) != 1 || !strings.HasPrefix(got[0], "/dev/sdb2 Found") {
		t.Errorf("raw in a partition: %q", got)
	}
	checkCopies(t, s, raw)
}

// A person who plugged in the wrong stick reads what the node saw.
func TestAMediumWithoutABundleSaysWhatWasSeen(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"README": make([]byte, 2000), "a/b/release": version(t, "1.2.3"), "a/x": make([]byte, 900)}
	fat := fileSystem(t, "FAT", files)
	ntfs := make([]byte, 1<<20)
	copy(ntfs[3:], "NTFS    ")
	damaged := bytes.Clone(fat)
	damaged[13] = 3
	many := map[string][]byte{}
	for i := range 600 {
		many[fmt.Sprintf("f%03d", i)] = make([]byte, 600)
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"a stick with other files": {fat, `checked 2 files in FAT32 "STICK", in the root directory and in directories below it`},
		"in a partition":           {partitioned(fat), `checked 2 files in FAT32 "STICK" in partition 2, in the root`},
		"very many files":          {fileSystem(t, "ext4", many), `checked the first 500 files in ext4 "STICK"`},
		"NTFS":                     {ntfs, "NTFS is not supported: use FAT, exFAT, ISO 9660 or ext4"},
		"NTFS in a partition":      {partitioned(ntfs), "partition 2: NTFS is not supported"},
		"a damaged file system":    {damaged, "file system: FAT: boot sector: 3 sectors per cluster, which is no power of two"},
		"an empty stick":           {make([]byte, 1<<20), "it has no known file system: copy the bundle to a medium with FAT, exFAT, ISO 9660 or ext4, or write it with refit bundle write"},
	} {
		d := &device{raw: c.raw}
		s := setOf(map[string]*device{"/dev/sdb": d})
		m := plugged("/dev/sdb", "1")
		if s.Scan([]media.Medium{m}); len(messages(s)) != 0 {
			t.Errorf("%s: a device of the machine's own: %q", name, messages(s))
		}
		m.Expected, m.Model, m.Key = true, "SanDisk Ultra", "2"
		s.Scan([]media.Medium{m})
		got := s.Describe(Policy{}, nil)
		if len(got) != 1 || got[0].Device != "/dev/sdb" || got[0].State != v1alpha1.MediumUnreadable || got[0].Digest != "" ||
			!strings.HasPrefix(got[0].Message, "no bundle found on SanDisk Ultra: ") || !strings.Contains(got[0].Message, c.want) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
		reads := d.reads.Load()
		if s.Scan([]media.Medium{m}); d.reads.Load() != reads {
			t.Errorf("%s: an unchanged device was read again", name)
		}
	}
	d := &device{raw: fat, err: errors.New("input/output error")}
	s := setOf(map[string]*device{"/dev/sdb": d})
	m := plugged("/dev/sdb", "1")
	m.Expected = true
	s.Scan([]media.Medium{m})
	if got := messages(s); len(got) != 1 || !strings.Contains(got[0], "input/output error") {
		t.Errorf("a stick that cannot be read: %q", got)
	}
}

// corruptMedia are damaged in ways that keep a reader busy or lead it astray.
func corruptMedia(t *testing.T) map[string][]byte {
	good := version(t, "1.2.3")
	files := map[string][]byte{"release": good, "dir/other": good}
	fat, ext, iso := fileSystem(t, "FAT", files), fileSystem(t, "ext4", files), fileSystem(t, "ISO 9660", files)
	change := func(image []byte, at int, b ...byte) []byte {
		out := bytes.Clone(image)
		copy(out[at:], b)
		return out
	}
	table := 512 * int(uint16(fat[14])|uint16(fat[15])<<8)
	cluster := func(n int) int { return table + 4*n }
	root := bytes.Index(iso[18*2048:], []byte{34, 0}) + 18*2048
	return map[string][]byte{
		"FAT: the root directory is a loop":        change(fat, cluster(2), 2, 0, 0, 0),
		"FAT: every chain is a loop":               change(fat, cluster(3), bytes.Repeat([]byte{3, 0, 0, 0}, 1000)...),
		"FAT: chains lead out of the volume":       change(fat, cluster(3), bytes.Repeat([]byte{0xF0, 0xFF, 0xFF, 0x0F}, 1000)...),
		"FAT: no bytes per sector":                 change(fat, 11, 0, 0),
		"FAT: more sectors than the medium":        change(fat, 32, 0xFF, 0xFF, 0xFF, 0xFF),
		"ext4: the superblock's checksum is wrong": change(ext, 1024+100, 0xFF, 0xFF),
		"ext4: group descriptors are noise":        change(ext, 4096, noise(2048)...),
		"ext4: cut off":                            ext[:len(ext)/8],
		"ISO 9660: the directory is outside":       change(iso, 16*2048+158, 0xFF, 0xFF, 0xFF, 0x7F, 0x7F, 0xFF, 0xFF, 0xFF),
		"ISO 9660: records are noise":              change(iso, root, noise(2048)...),
		"partition table: a partition is far away": change(partitioned(fat), 446+16+8, 0xFF, 0xFF, 0xFF, 0xFF),
		"partition table: logical ones are a loop": change(partitioned(fat), 446+4, 5, 0, 0, 0, 0, 0, 0, 0, 1),
		"all of it is noise after the boot sector": append(bytes.Clone(fat[:512]), noise(1<<20)...),
		"a hostile header in a file":               fileSystem(t, "FAT", bundletest.Costly(1<<20, 1<<20)),
	}
}

// No stick costs the agent more than its answer: the reader has no privileges and little memory.
func TestCorruptMedia(t *testing.T) {
	if raceDetector {
		t.Skip("the unprivileged reader has not the memory that the race detector needs")
	}
	for name, raw := range corruptMedia(t) {
		path := onDisk(t, raw).Name()
		s := MediaSet{Contents: UnprivilegedContents, wait: time.Minute}
		s.Scan([]media.Medium{{Path: path, Key: "1", Expected: true}})
		in := s.all[path]
		if in == nil || in.err != nil {
			t.Errorf("%s: %+v", name, in)
		}
		for _, m := range messages(&s) {
			if !strings.Contains(m, "Found") && !strings.Contains(m, "Unreadable") && !strings.Contains(m, "Refused") {
				t.Errorf("%s: %q", name, m)
			}
		}
		if len(messages(&s)) == 0 {
			t.Errorf("%s: the status is silent", name)
		}
		s.Close()
	}
}

// The places of a file reach the agent as they are, and reads end where the file or the medium ends.
func TestExtents(t *testing.T) {
	t.Parallel()
	raw := version(t, "1.2.3")
	d := &device{raw: fileSystem(t, "ext4", map[string][]byte{"release": raw})}
	c, err := LocalContents(t.Context(), d)
	if err != nil || len(c.Bundles) != 1 {
		t.Fatal(c, err)
	}
	b := c.Bundles[0]
	again, err := decodeExtents(encodeExtents(b.Extents), b.Size, len(b.Extents))
	if err != nil || !slices.Equal(again, b.Extents) {
		t.Errorf("%v, %v, want %v", again, err, b.Extents)
	}
	r := newExtentReader(d, b.Extents)
	if n, err := r.ReadAt(make([]byte, 100), b.Size-10); n != 10 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if _, err := r.ReadAt(make([]byte, 100), -1); err == nil {
		t.Error("a negative offset")
	}
	d.raw = d.raw[:len(d.raw)/64]
	if _, err := r.ReadAt(make([]byte, b.Size), 0); err == nil {
		t.Error("the medium ends before the file")
	}
	if !bundle.ValidDigest(b.Label.Digest) {
		t.Errorf("%+v", b.Label)
	}
}
