package filesystem

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
)

// fuzzImages build the images that the fuzz targets damage.
var fuzzImages = map[string]func(t testing.TB) []byte{
	"iso9660-rockridge": func(t testing.TB) []byte { return tinyISO(t, "genisoimage -r -J -no-pad") },
	"iso9660-joliet":    func(t testing.TB) []byte { return tinyISO(t, "genisoimage -J -no-pad") },
	"ext4-extents":      func(t testing.TB) []byte { return tinyExt4(t, "-t ext4 -O ^metadata_csum,^uninit_bg") },
	"ext4-inline": func(t testing.TB) []byte {
		return tinyExt4(t, "-t ext4 -O ^metadata_csum,^uninit_bg,inline_data -I 256")
	},
	"ext4-map": func(t testing.TB) []byte { return tinyExt4(t, "-t ext2") },
}

// fuzzImage makes an image; without its tool the test is skipped.
func fuzzImage(t testing.TB, name string) []byte {
	t.Helper()
	return fuzzImages[name](t)
}

// TestFuzzImages checks that the undamaged images can be read.
func TestFuzzImages(t *testing.T) {
	for name := range fuzzImages {
		t.Run(name, func(t *testing.T) {
			if err := walk(openImage(t, fuzzImage(t, name)), 1000); err != nil {
				t.Error(err)
			}
		})
	}
}

// patchSize is how many bytes of fuzz input change four bytes of an image: three for the place
// and four for the new bytes.
const patchSize = 7

func patchImage(image, patches []byte) []byte {
	damaged := bytes.Clone(image)
	for ; len(patches) >= patchSize; patches = patches[patchSize:] {
		at := int(binary.LittleEndian.Uint32(patches)&0xffffff) % (len(image) - 4)
		copy(damaged[at:], patches[3:patchSize])
	}
	return damaged
}

// fuzzPatches runs a target whose inputs are patches of images, so that inputs stay tiny and
// begin with a volume that can be read. Each place in seeds gets an input that names it.
func fuzzPatches(f *testing.F, open opener, seeds map[string][]int, names ...string) {
	var images [][]byte
	for i, name := range names {
		image := fuzzImage(f, name)
		images = append(images, image)
		f.Add(uint8(i), []byte{})
		for _, at := range seeds[name] {
			place := binary.LittleEndian.AppendUint32(nil, uint32(at))[:3]
			f.Add(uint8(i), append(place, image[at:at+4]...))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, patches []byte) {
		image := patchImage(images[int(which)%len(images)], patches)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := &countedReader{ReaderAt: bytes.NewReader(image)}
		if v, err := open(r, int64(len(image))); err == nil {
			_ = walk(v, 1000)
		}
		runtime.ReadMemStats(&after)
		r.check(t, 1<<30)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 512<<20 {
			t.Errorf("allocated %d MiB", allocated>>20)
		}
	})
}

// nonZeros are the places of an image that are worth a change, up to a number of them.
func nonZeros(image []byte, from, limit int) []int {
	var places []int
	for at := from; at < len(image)-4 && len(places) < limit; at += 4 {
		if binary.LittleEndian.Uint32(image[at:]) != 0 {
			places = append(places, at)
		}
	}
	return places
}

func FuzzISO9660(f *testing.F) {
	seeds := map[string][]int{}
	names := []string{"iso9660-rockridge", "iso9660-joliet"}
	for _, name := range names {
		seeds[name] = nonZeros(fuzzImage(f, name), 18*isoSector, 300)
	}
	fuzzPatches(f, openISO9660, seeds, names...)
}

func FuzzExt4(f *testing.F) {
	seeds := map[string][]int{}
	names := []string{"ext4-extents", "ext4-inline", "ext4-map"}
	for _, name := range names {
		seeds[name] = nonZeros(fuzzImage(f, name), ext4SuperBlockAt, 200)
	}
	fuzzPatches(f, openExt4, seeds, names...)
}
