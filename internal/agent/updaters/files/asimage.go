package files

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/model"
)

// imageEtc is where a host keeps what its booted image has at a path of /etc.
func imageEtc(etc string) string { return "/usr" + etc }

// over reports whether refit wrote over what the booted image has at a path of /etc, or
// removed it, so that it is refit's to give back. What somebody else has put there is not,
// and a host that keeps nothing of its image has nothing that could be given back.
func (u *Updater) over(g given, path string, now nodefiles.State) (bool, error) {
	kept, err := u.fs.Look(imageEtc("/etc"))
	if err != nil || !kept.Exists {
		return false, err
	}
	image, err := u.fs.Look(imageEtc(path))
	if err != nil || alike(now, image) {
		return false, err
	}
	what := now.Digest
	if !now.Exists {
		what = model.ValueAbsent
	}
	return what != "" && slices.Contains(g.Files[path].Wrote, what), nil
}

// alike are two paths that libostree takes for the same.
func alike(a, b nodefiles.State) bool {
	if !a.Exists || !b.Exists {
		return a.Exists == b.Exists
	}
	return a.Regular == b.Regular && a.Link == b.Link && a.Digest == b.Digest && a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID
}

// giveBack puts at a path what the booted image has there, so that the next image's comes
// into its place: libostree keeps a file that differs from the default of the image before.
func (u *Updater) giveBack(path string) error {
	data, s, err := u.fs.Read(imageEtc(path))
	switch {
	case err != nil:
		return err
	case !s.Exists:
		return u.fs.Remove(path)
	case !s.Regular:
		return fmt.Errorf("%s of the image: %w (%s)", path, errNotAFile, describe(s.Link))
	}
	return u.fs.Write(path, data, s.Mode, int(s.UID), int(s.GID))
}

// errUntouched: there is nothing to give back, whatever lies there.
var errUntouched = errors.New("refit has not written over the image there")

// gives is the digest of what a step writes to a file's path, empty for nothing.
func (u *Updater) gives(g given, f model.ConfigFile) (string, error) {
	if !f.AsImage {
		return f.Content(), nil
	}
	now, err := u.fs.Look(f.Path)
	if err != nil {
		return "", err
	}
	switch over, err := u.over(g, f.Path, now); {
	case err != nil:
		return "", err
	case !over:
		return "", errUntouched
	}
	s, err := u.fs.Look(imageEtc(f.Path))
	return s.Digest, err
}

// asImage is the value of a file that is to be as the image has it.
func (u *Updater) asImage(g given, path string) string {
	s, err := u.fs.Look(path)
	if err != nil {
		return ""
	}
	switch over, err := u.over(g, path, s); {
	case err != nil:
		return ""
	case !over:
		return model.ValueAsImage
	case !s.Exists:
		return model.ValueAbsent
	}
	return model.FileValue(s.Digest, s.Mode, named("root", s.UID, nodefiles.UserID), named("root", s.GID, nodefiles.GroupID))
}
