package filesystem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mountExFAT mounts an image with the FUSE program until the returned function is called.
func mountExFAT(t *testing.T, image string) (string, func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting exFAT needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("mounting exFAT needs /dev/fuse")
	}
	dir := t.TempDir()
	loop := strings.TrimSpace(tool(t, "losetup", "-f", "--show", image))
	detach := func() { tool(t, "losetup", "-d", loop) }
	t.Cleanup(func() {
		if detach != nil {
			detach()
		}
	})
	tool(t, "mount.exfat-fuse", loop, dir)
	return dir, func() {
		tool(t, "umount", dir)
		detach()
		detach = nil
	}
}

func TestExFATFromTools(t *testing.T) {
	t.Parallel()
	for _, cluster := range []string{"512", "4K", "128K"} {
		t.Run(cluster, func(t *testing.T) {
			t.Parallel()
			image, tree := imageFile(t, 40<<20), testTree()
			tool(t, "mkfs.exfat", "-c", cluster, "-L", "MEDIUM", image)
			dir, unmount := mountExFAT(t, image)
			writeFiles(t, dir, tree)
			unmount()
			tool(t, "fsck.exfat", "-n", image)
			v := openImageFile(t, image)
			if v.Kind != "exFAT" || v.Label != "MEDIUM" {
				t.Errorf("%s with label %q", v.Kind, v.Label)
			}
			checkTree(t, v, tree)
		})
	}
}

// TestExFATFragmented fills a volume, deletes every other file and writes a large one into the gaps.
func TestExFATFragmented(t *testing.T) {
	t.Parallel()
	image, tree := imageFile(t, 8<<20), map[string][]byte{}
	tool(t, "mkfs.exfat", "-c", "4K", "-b", "4K", image)
	dir, unmount := mountExFAT(t, image)
	for i := range 70 {
		tree[fmt.Sprintf("fill%d", i)] = randomBytes(uint64(i), 100000)
	}
	writeFiles(t, dir, tree)
	for i := 0; i < 70; i += 2 {
		name := fmt.Sprintf("fill%d", i)
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		delete(tree, name)
	}
	large := map[string][]byte{"large.bin": randomBytes(99, 3000000)}
	writeFiles(t, dir, large)
	maps.Copy(tree, large)
	unmount()
	tool(t, "fsck.exfat", "-n", image)
	v := openImageFile(t, image)
	checkTree(t, v, tree)
	if n := runsOf(t, v, "large.bin"); n < 10 {
		t.Errorf("large.bin has %d pieces: the test does not fragment", n)
	}
}

// TestExFATUnwritten checks that bytes beyond the valid ones are zeros, not old contents.
func TestExFATUnwritten(t *testing.T) {
	t.Parallel()
	for _, unwritten := range []int{1, 500, 512, 1100, 3000} {
		for _, fragmented := range []bool{false, true} {
			data := randomBytes(7, 3000)
			image := buildExFAT(100, 0, testFile{name: "file", data: data, unwritten: unwritten, fragmented: fragmented})
			want := bytes.Clone(data)
			clear(want[len(want)-unwritten:])
			v, err := Open(bytes.NewReader(image), int64(len(image)))
			if err != nil {
				t.Fatal(err)
			}
			checkTree(t, v, map[string][]byte{"file": want})
		}
	}
}

// TestExFATSecondTable moves the only table to the place of a second one, and makes that active.
func TestExFATSecondTable(t *testing.T) {
	t.Parallel()
	files, tree := builtFiles()
	image := buildExFAT(100, 0, files...)
	const table, heap = 24 * 512, 25 * 512
	moved := append(bytes.Clone(image[:heap]), image[table:]...)
	clear(moved[table:heap])
	binary.LittleEndian.PutUint64(moved[72:], uint64(len(moved)/512))
	binary.LittleEndian.PutUint32(moved[88:], heap/512+1)
	moved[106], moved[110] = 1, 2
	repairExFATBoot(moved)
	v, err := Open(bytes.NewReader(moved), int64(len(moved)))
	if err != nil {
		t.Fatal(err)
	}
	checkTree(t, v, tree)
}

// TestExFATHugeFile puts an entry for a file of 5 GiB into the root directory of a sparse volume.
func TestExFATHugeFile(t *testing.T) {
	t.Parallel()
	const size, first = int64(5<<30) + 77, 1000
	image := imageFile(t, 8<<30)
	tool(t, "mkfs.exfat", image)
	v := openImageFile(t, image)
	node := findNode[*clusterNode](t, v, ".")
	heap := node.v.clusterHeap
	root, err := heap.content(node)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records := make([]byte, heap.cluster)
	if _, err := root.ReadAt(records, 0); err != nil {
		t.Fatal(err)
	}
	end := 0
	for records[end] != 0 {
		end += 32
	}
	start := heap.start + (first-2)*heap.cluster
	writes := map[int64][]byte{
		heap.start + int64(root.runs[0].cluster-2)*heap.cluster + int64(end): exfatEntrySet("huge.bin", 0x20, first, true, uint64(size), uint64(size)),
	}
	marks := map[int64]string{0: "start", 4<<30 - 3: "four GiB", size - 3: "end"}
	for at, mark := range marks {
		writes[start+at] = []byte(mark)
	}
	for at, b := range writes {
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	huge, err := v.Open("huge.bin")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := huge.Stat(); err != nil || info.Size() != size {
		t.Errorf("size %d, want %d: %v", info.Size(), size, err)
	}
	for at, mark := range marks {
		p := make([]byte, len(mark)+2)
		n, err := huge.(File).ReadAt(p, at)
		want := append([]byte(mark), 0, 0)[:min(int64(len(p)), size-at)]
		if err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(p[:n], want) {
			t.Errorf("at %d: %q, want %q: %v", at, p[:n], want, err)
		}
	}
}
