package bootstream

import (
	"path"
	"slices"
	"sort"
	"strings"
)

// File is a boot image, or a part of one, that is a file and no image of a cloud yet. The
// platform starts machines from it once the administrator has uploaded it.
type File struct {
	// Key and Version of the image.
	Key     Key
	Version string
	// Part of the image: empty for its disk, else kernel, initramfs, rootfs.
	Part string
	// Location is its URL, empty if the stream has none.
	Location string
	// SHA256 of the file and, if it is compressed, of its content; hex.
	SHA256, Uncompressed string
	// Payload is its name in the bundle with the stream, empty if no bundle has it.
	Payload string
}

// HasSum reports whether a file, or its uncompressed content, has this SHA-256 in hex.
func (f File) HasSum(sum string) bool {
	return sum != "" && (f.SHA256 == sum || f.Uncompressed == sum)
}

// Base is the last element of the location, for example rhcos.ova; else Name.
func (f File) Base() string {
	if b := path.Base(f.Location); f.Location != "" && b != "/" && b != "." {
		return b
	}
	return f.Name()
}

// Name is a lower-case name: platform, architecture, variant, part and OS stream, joined
// with dots.
func (f File) Name() string {
	words := []string{f.Key.Platform, f.Key.Architecture, f.Key.Variant, f.Part, f.Key.OSStream}
	return strings.ToLower(strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), "."))
}

const attributeSum = "sha256"

// Files of an image, its disk first; none for an image of a cloud.
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

// DiskFile returns the disk of an image that is a file.
func (i Image) DiskFile() (File, bool) {
	if fs := i.Files(); len(fs) > 0 && fs[0].Part == "" {
		return fs[0], true
	}
	return File{}, false
}

// FindFile finds the file with a SHA-256 in hex.
func (s *Stream) FindFile(sum string) (File, bool) {
	for _, i := range s.Images {
		for _, f := range i.Files() {
			if f.HasSum(sum) {
				return f, true
			}
		}
	}
	return File{}, false
}

// SetFilePayload records the payload of a bundle that holds a file.
func (s *Stream) SetFilePayload(sum, payload string) {
	for _, i := range s.Images {
		for _, f := range i.Files() {
			if f.HasSum(sum) && f.Part == "" {
				i.Attributes["payload"] = payload
			} else if f.HasSum(sum) {
				i.Attributes[f.Part+".payload"] = payload
			}
		}
	}
}

// Upload has the attributes of an uploaded image in a region of its platform.
type Upload struct {
	// SHA256 of the file, or of its uncompressed content; hex.
	SHA256 string
	// Region as policies name it; empty means every region.
	Region string
	// Attributes with which the platform names it, additional to those of policies.
	Attributes map[string]string
}

// AddUploads adds uploads to their images, and returns the sums that no file of the stream
// has.
func (s *Stream) AddUploads(all []Upload) []string {
	var strange []string
	for _, u := range all {
		found := false
		for n := range s.Images {
			if f, ok := s.Images[n].DiskFile(); ok && f.HasSum(u.SHA256) {
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

// UploadForRegion returns the upload in a region, else the one for every region.
func (i Image) UploadForRegion(region string) (Upload, bool) {
	for _, want := range []string{region, ""} {
		for _, u := range i.Uploads {
			if u.Region == want {
				return u, true
			}
		}
	}
	return Upload{}, false
}
