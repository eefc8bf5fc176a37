package flatten

import (
	"archive/tar"
	"io"
	"slices"
	"sort"
	"strings"
	"time"
)

// write emits the chosen entries, the lowest layer first.
func (f *flat) write(w *tar.Writer) error {
	have := map[string]bool{}
	f.unpacked = 0
	for i := range f.layers {
		err := f.walk(i, func(name string, h *tar.Header, r io.Reader) error {
			if !f.wins[i][name] {
				return nil
			}
			delete(f.wins[i], name) // an entry that is there twice counts once
			return f.emit(w, name, h, r, have)
		})
		if err != nil {
			return err
		}
	}
	if f.form != Extension {
		if err := f.skeleton(w, have); err != nil {
			return err
		}
	}
	return w.Close()
}

func (f *flat) emit(w *tar.Writer, name string, h *tar.Header, r io.Reader, have map[string]bool) error {
	to, ok := f.place(name, h)
	if !ok {
		return nil
	}
	out := &tar.Header{Typeflag: h.Typeflag, Name: to, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, Size: h.Size, ModTime: h.ModTime.Truncate(time.Second),
		Linkname: h.Linkname, PAXRecords: attributes(h), Format: tar.FormatPAX}
	switch h.Typeflag {
	case tar.TypeDir:
		out.Name += "/"
	case tar.TypeLink:
		if out.Linkname, ok = f.place(clean(h.Linkname), nil); !ok {
			return nil
		}
	case tar.TypeReg, tar.TypeSymlink:
	default:
		return nil // devices and pipes are made when the machine starts
	}
	if err := f.parents(w, to, have); err != nil {
		return err
	}
	have[to] = true
	if err := f.label(out, running(to)); err != nil {
		return err
	}
	if err := w.WriteHeader(out); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeReg {
		_, err := io.Copy(w, r)
		return err
	}
	return nil
}

// attributes are the extended ones, such as the capabilities of a program.
func attributes(h *tar.Header) map[string]string {
	out := map[string]string{}
	for k, v := range h.PAXRecords {
		if strings.HasPrefix(k, "SCHILY.xattr.") && !strings.HasSuffix(k, "security.selinux") {
			out[k] = v
		}
	}
	return out
}

// machines are the folders whose content is the machine's own.
func machines() []string {
	return []string{"dev", "proc", "run", "sys", "tmp", "var", "sysroot", "boot", "ostree"}
}

// place says where an entry goes, ok is false if nowhere.
func (f *flat) place(name string, h *tar.Header) (string, bool) {
	top, _, below := strings.Cut(name, "/")
	switch {
	case f.form == Extension:
		return name, top == "usr" || top == "opt"
	case name == "", name == "usr/etc", strings.HasPrefix(name, "usr/etc/"):
		return "", false
	case top == "etc":
		return "usr/" + name, true
	case slices.Contains(machines(), top): // the folder itself, if it is one
		return name, !below && top != "ostree" && (h == nil || h.Typeflag == tar.TypeDir)
	}
	return name, true
}

// skeleton adds the mount points of a machine that the image does not have.
func (f *flat) skeleton(w *tar.Writer, have map[string]bool) error {
	names := append(machines(), "usr/etc")
	sort.Strings(names)
	for _, n := range names {
		h := &tar.Header{Typeflag: tar.TypeDir, Name: n + "/", Mode: 0o755, Format: tar.FormatPAX}
		switch n {
		case "tmp":
			h.Mode = 0o1777
		case "ostree":
			h = &tar.Header{Typeflag: tar.TypeSymlink, Name: n, Linkname: "sysroot/ostree", Mode: 0o777, Format: tar.FormatPAX}
		}
		if have[n] {
			continue
		}
		if err := f.label(h, running(n)); err != nil {
			return err
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
	}
	return nil
}
