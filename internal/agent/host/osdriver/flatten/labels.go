package flatten

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/refit-dev/refit/internal/fsutil"
)

const (
	// selinuxDir of an image has its policy.
	selinuxDir = "etc/selinux/"
	// maxPolicy bytes of one of its files are read; the largest has 500 kB.
	maxPolicy = 8 << 20
	// labelRecord is a label in a tar. libostree stores it with the zero byte that the kernel
	// keeps.
	labelRecord = "SCHILY.xattr.security.selinux"
)

// keepPolicy keeps a file that says which label others have.
func (f *flat) keepPolicy(name string, h *tar.Header, r io.Reader) error {
	if f.form == Extension || h.Typeflag != tar.TypeReg || !strings.HasPrefix(name, selinuxDir) {
		return nil
	}
	if name != selinuxDir+"config" && !strings.Contains(name, "/contexts/files/file_contexts") || strings.HasSuffix(name, ".bin") {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(r, maxPolicy+1))
	if err != nil {
		return err
	}
	if len(b) > maxPolicy {
		return fmt.Errorf("/%s has more than %d bytes", name, maxPolicy)
	}
	if f.policy == nil {
		f.policy = map[string][]byte{}
	}
	if _, ok := f.policy[name]; !ok {
		f.policy[name] = b
	}
	return nil
}

// readPolicy makes the contexts of what keepPolicy kept, if the image switches SELinux on.
func (f *flat) readPolicy() (err error) {
	if f.form == Extension {
		return nil
	}
	config := f.policy[selinuxDir+"config"]
	if fsutil.PolicyIsOn(config) {
		dir := path.Join(selinuxDir, fsutil.PolicyName(config, nil), "contexts/files")
		f.contexts, err = fsutil.ReadContexts(func(name string) ([]byte, error) {
			b, ok := f.policy[path.Join(dir, name)]
			if !ok {
				return nil, fmt.Errorf("/%s: %w", path.Join(dir, name), fs.ErrNotExist)
			}
			return b, nil
		})
	}
	if f.form == Enforced && f.contexts == nil {
		return ErrNoPolicy
	}
	if err != nil {
		return fmt.Errorf("its SELinux policy: %w", err)
	}
	return nil
}

// label adds the label of a file to its entry, by its name in the running OS. The mount point of
// the kernel's processes gets that of an ordinary one, as libostree has it: the policy has none.
func (f *flat) label(h *tar.Header, name string) error {
	if f.contexts == nil || h.Typeflag == tar.TypeLink { // a link has the label of its target
		return nil
	}
	if name == "proc" {
		name = "mnt"
	}
	label, err := f.contexts.Label(name, h.FileInfo().Mode())
	if err != nil || label == "" {
		return err
	}
	if h.PAXRecords == nil {
		h.PAXRecords = map[string]string{}
	}
	h.PAXRecords[labelRecord] = label + "\x00"
	return nil
}

// parents writes the folders above an entry that have not come yet: without an entry they would have
// no label.
func (f *flat) parents(w *tar.Writer, to string, have map[string]bool) error {
	if f.contexts == nil {
		return nil
	}
	for i := range len(to) + 1 {
		if i > 0 && (i == len(to) || to[i] != '/') || have[to[:i]] {
			continue
		}
		have[to[:i]] = true
		h := &tar.Header{Typeflag: tar.TypeDir, Name: to[:i] + "/", Mode: 0o755, Format: tar.FormatPAX}
		if i == 0 {
			h.Name = "./"
		}
		if err := f.label(h, running(to[:i])); err != nil {
			return err
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
	}
	return nil
}

// running is the name in the running OS of what has another one in a commit.
func running(name string) string {
	if name == "usr/etc" || strings.HasPrefix(name, "usr/etc/") {
		return strings.TrimPrefix(name, "usr/")
	}
	return name
}
