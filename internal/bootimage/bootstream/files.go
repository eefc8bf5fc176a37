package bootstream

import (
	"path"
	"slices"
	"sort"
	"strings"
)

// File is a boot image, or a part of one, that is a file and no image of a cloud
// yet: its platform starts machines from it when somebody has uploaded it.
type File struct {
	// Key and Version of the image.
	Key     Key
	Version string
	// Part of the image: empty for its disk, else kernel, initramfs, rootfs.
	Part string
	// Location is where it can be fetched, empty if the stream does not say.
	Location string
	// SHA256 of the file and, if it is compressed, of what is in it; hex.
	SHA256, Uncompressed string
	// Payload is its name in the bundle that brought the stream, empty if it is not
	// in there.
	Payload string
}

// Is reports whether a file, or what is in it, has this SHA-256 in hex.
func (f File) Is(sum string) bool {
	return sum != "" && (f.SHA256 == sum || f.Uncompressed == sum)
}

// Base is the last part of its location, for example rhcos.ova; else a name made of
// its key.
func (f File) Base() string {
	if b := path.Base(f.Location); f.Location != "" && b != "/" && b != "." {
		return b
	}
	return f.Name()
}

// Name of the file where names are lower-case words: platform, architecture,
// variant and part, with dots between.
func (f File) Name() string {
	words := []string{f.Key.Platform, f.Key.Architecture, f.Key.Variant, f.Part, f.Key.OSStream}
	return strings.ToLower(strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), "."))
}

const attributeSum = "sha256"

// Files of an image, its disk first; none if it is in a cloud.
func (i Image) Files() []File {
	var out []File
	for k, sum := range i.Attributes {
		prefix, ok := strings.CutSuffix(k, attributeSum)
		if !ok || sum == "" || prefix != "" && !strings.HasSuffix(prefix, ".") {
			continue
		}
		out = append(out, File{Key: i.Key, Version: i.Version, Part: strings.TrimSuffix(prefix, "."), Location: i.Attributes[prefix+"location"],
			SHA256: sum, Uncompressed: i.Attributes[prefix+"uncompressedSha256"], Payload: i.Attributes[prefix+"payload"]})
	}
	sort.Slice(out, func(a, b int) bool { return out[a].Part < out[b].Part })
	return out
}

// Disk is the file that an image is, if it is one.
func (i Image) Disk() (File, bool) {
	if fs := i.Files(); len(fs) > 0 && fs[0].Part == "" {
		return fs[0], true
	}
	return File{}, false
}

// FileOf finds the file with a SHA-256 in hex.
func (s *Stream) FileOf(sum string) (File, bool) {
	for _, i := range s.Images {
		for _, f := range i.Files() {
			if f.Is(sum) {
				return f, true
			}
		}
	}
	return File{}, false
}

// BroughtFile notes that a bundle brings a file, under the name of a payload.
func (s *Stream) BroughtFile(sum, payload string) {
	for _, i := range s.Images {
		for _, f := range i.Files() {
			if f.Is(sum) && f.Part == "" {
				i.Attributes["payload"] = payload
			} else if f.Is(sum) {
				i.Attributes[f.Part+".payload"] = payload
			}
		}
	}
}

// Upload says under which attributes an image that is a file was brought to a
// region of its platform.
type Upload struct {
	// SHA256 of the file, or of what is in it; hex.
	SHA256 string
	// Region as policies name it; empty is every one.
	Region string
	// Attributes that the platform names it by, besides those that policies give.
	Attributes map[string]string
}

// Uploaded notes uploads on the images that they are of, and returns the sums of
// those that are of no file of the stream.
func (s *Stream) Uploaded(all []Upload) []string {
	var strange []string
	for _, u := range all {
		found := false
		for n := range s.Images {
			if f, ok := s.Images[n].Disk(); ok && f.Is(u.SHA256) {
				s.Images[n].Uploads = append(s.Images[n].Uploads, u)
				found = true
			}
		}
		if !found {
			strange = append(strange, u.SHA256)
		}
	}
	return strange
}

// UploadIn a region; one that is for every region is taken if there is none for
// this one.
func (i Image) UploadIn(region string) (Upload, bool) {
	for _, want := range []string{region, ""} {
		for _, u := range i.Uploads {
			if u.Region == want {
				return u, true
			}
		}
	}
	return Upload{}, false
}
