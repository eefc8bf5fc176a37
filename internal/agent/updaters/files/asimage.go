package files

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/model"
)

// imageEtc is where a host has its booted image's version of a path of /etc.
func imageEtc(etc string) string { return "/usr" + etc }

// overwroteImage reports whether refit overwrote, or removed, the booted image's version of
// a path of /etc, so that refit must restore it. A file from others does not count, and a
// host that has no copy of its image's /etc has nothing to restore from.
func (u *Updater) overwroteImage(g recordData, path string, now nodefiles.State) (bool, error) {
	kept, err := u.fs.Inspect(imageEtc("/etc"))
	if err != nil || !kept.Exists {
		return false, err
	}
	image, err := u.fs.Inspect(imageEtc(path))
	if err != nil || sameForOSTree(now, image) {
		return false, err
	}
	what := now.Digest
	if !now.Exists {
		what = model.ValueAbsent
	}
	return what != "" && slices.Contains(g.Files[path].Wrote, what), nil
}

// sameForOSTree reports whether libostree takes two paths for the same.
func sameForOSTree(a, b nodefiles.State) bool {
	if !a.Exists || !b.Exists {
		return a.Exists == b.Exists
	}
	return a.Regular == b.Regular && a.Link == b.Link && a.Digest == b.Digest && a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID
}

// restoreImageFile writes the booted image's version of a path there, so that the next
// image's version replaces it: libostree keeps a file that differs from the old default.
func (u *Updater) restoreImageFile(path string) error {
	data, s, err := u.fs.Read(imageEtc(path))
	switch {
	case err != nil:
		return err
	case !s.Exists:
		return u.fs.Remove(path)
	case !s.Regular:
		return fmt.Errorf("%s of the image: %w (%s)", path, errNotAFile, describeLink(s.Link))
	}
	return u.fs.Write(path, data, s.Mode, int(s.UID), int(s.GID))
}

// errNotOverwritten: there is nothing to restore, because the file there is not refit's.
var errNotOverwritten = errors.New("refit has not overwritten the image's file there")

// digestToWrite is the digest of what a step writes to a file's path, empty for nothing.
func (u *Updater) digestToWrite(g recordData, f model.ConfigFile) (string, error) {
	if !f.AsImage {
		return f.Content(), nil
	}
	now, err := u.fs.Inspect(f.Path)
	if err != nil {
		return "", err
	}
	switch over, err := u.overwroteImage(g, f.Path, now); {
	case err != nil:
		return "", err
	case !over:
		return "", errNotOverwritten
	}
	s, err := u.fs.Inspect(imageEtc(f.Path))
	return s.Digest, err
}

// imageValue is the value of a file that is to match the image.
func (u *Updater) imageValue(g recordData, path string) string {
	s, err := u.fs.Inspect(path)
	if err != nil {
		return ""
	}
	switch over, err := u.overwroteImage(g, path, s); {
	case err != nil:
		return ""
	case !over:
		return model.ValueAsImage
	case !s.Exists:
		return model.ValueAbsent
	}
	return model.FileValue(s.Digest, s.Mode, ownerName("root", s.UID, nodefiles.UserID), ownerName("root", s.GID, nodefiles.GroupID))
}
