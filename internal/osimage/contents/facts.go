package contents

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/osimage"
)

const (
	modulesDir    = "usr/lib/modules"
	ostreeObjects = "sysroot/ostree/repo/objects/"
	systemdPath   = "usr/lib/systemd/systemd"
	initPath      = "usr/sbin/init"
	// boundDir has links to units of containers, whose images bootc pulls while it stages.
	boundDir = "usr/lib/bootc/bound-images.d"
	// selinuxConfig names the policy of SELinux, whose directory is next to it.
	selinuxConfig = "etc/selinux/config"
	// contextsFile of a policy says which label files have.
	contextsFile = "contexts/files/file_contexts"
	// extensionFiles say for which OS an image is an extension.
	extensionFiles = "usr/lib/extension-release.d/extension-release."
)

// merged are the entries of all layers by path, as a host unpacks them.
type merged map[string]tableEntry

// apply a layer on those below it: first what it removes of them, then what it has.
func (m merged) apply(t *layerTable) {
	for _, dir := range t.emptied {
		m.removeBelow(dir)
	}
	for _, at := range t.gone {
		delete(m, at)
		m.removeBelow(at)
	}
	for _, e := range t.entries {
		if e.kind != Directory {
			m.removeBelow(e.path)
		}
		for dir := path.Dir(e.path); dir != "."; dir = path.Dir(dir) {
			delete(m, dir) // a directory replaces what is no directory
		}
		m[e.path] = e
	}
}

func (m merged) removeBelow(dir string) {
	for at := range m {
		if dir == "" || strings.HasPrefix(at, dir+"/") {
			delete(m, at)
		}
	}
}

// mergedPath is the path of an entry on a host where /bin, /sbin and /lib are links into /usr.
func mergedPath(name string) string {
	top, rest, below := strings.Cut(name, "/")
	if below && slices.Contains([]string{"bin", "sbin", "lib", "lib64"}, top) {
		return "usr/" + top + "/" + rest
	}
	return name
}

// unitDirs are where systemd looks for units, the first one counts.
var unitDirs = []string{"etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system"}

// kernelFiles are those that a host copies to /boot.
var kernelFiles = []string{"vmlinuz", "initramfs.img"}

// textFiles are small files that are read.
var textFiles = []string{"usr/lib/os-release", "etc/os-release", "usr/lib/ostree/prepare-root.conf", "etc/ostree/prepare-root.conf", selinuxConfig}

// exactPaths are the paths that matter, without those of kernels.
var exactPaths = func() map[string]bool {
	out := map[string]bool{systemdPath: true, initPath: true, "usr/local": true}
	programs := append(osimage.RuntimePrograms(), osimage.AgentProgram)
	units := []string{osimage.AgentUnit}
	for program, of := range osimage.KubeletPrograms() {
		programs, units = append(programs, program), append(units, of...)
	}
	for _, p := range osimage.RuntimePrograms() {
		units = append(units, p+".service")
	}
	for _, dir := range osimage.ProgramDirs() {
		for _, p := range programs {
			out[dir+"/"+p] = true
		}
	}
	for _, dir := range unitDirs {
		for _, u := range units {
			out[dir+"/"+u] = true
		}
	}
	for _, f := range textFiles {
		out[f] = true
	}
	for f := range databases {
		out[f] = true
	}
	return out
}()

// aboveMatter are the directories above paths that matter: a link or a file in the place of one
// matters too.
var aboveMatter = func() map[string]bool {
	out := map[string]bool{modulesDir: true, boundDir: true, path.Dir(extensionFiles): true}
	for at := range exactPaths {
		for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
			out[dir] = true
		}
	}
	return out
}()

// isPolicyPart reports whether a path is that of a policy's file_contexts, or of a directory above.
func isPolicyPart(name string) bool {
	rest, ok := strings.CutPrefix(name, path.Dir(selinuxConfig)+"/")
	_, below, _ := strings.Cut(rest, "/")
	return ok && (below == "" || below == contextsFile || strings.HasPrefix(contextsFile, below+"/"))
}

func isText(name string) bool { return slices.Contains(textFiles, name) }

// kernelOf splits a path of a kernel's directory.
func kernelOf(name string) (version, file string, ok bool) {
	rest, ok := strings.CutPrefix(name, modulesDir+"/")
	if !ok {
		return "", "", false
	}
	version, file, _ = strings.Cut(rest, "/")
	return version, file, version != ""
}

// matters reports whether an entry says something about the image.
func matters(name string, k Kind) bool {
	if _, file, ok := kernelOf(name); ok {
		return slices.Contains(kernelFiles, file) || file == "" && k != Directory
	}
	listed := exactPaths[name] || aboveMatter[name] || path.Dir(name) == boundDir || strings.HasPrefix(name, extensionFiles) || isPolicyPart(name)
	return listed && k != Directory
}

// mayMatter reports whether the removal of a path may remove something that matters.
func mayMatter(name string) bool {
	if _, file, ok := kernelOf(name); ok {
		return file == "" || slices.Contains(kernelFiles, file)
	}
	return exactPaths[name] || aboveMatter[name] || isPolicyPart(name)
}

// databases of packages, with the function that finds the kubelet's version in one.
var databases = map[string]func(io.Reader) (string, error){
	"var/lib/dpkg/status": scanDpkg, "usr/lib/sysimage/dpkg/status": scanDpkg,
	"usr/lib/apk/db/installed": scanApk, "var/lib/apk/db/installed": scanApk,
	"usr/share/rpm/rpmdb.sqlite": scanRPM, "usr/lib/sysimage/rpm/rpmdb.sqlite": scanRPM, "var/lib/rpm/rpmdb.sqlite": scanRPM,
}

func scannerOf(name string) func(io.Reader) (string, error) { return databases[name] }

// kubeletPackages bring a kubelet.
var kubeletPackages = []string{"kubelet", "kubernetes-node"}

// scanLines calls visit with the lines of a text; a line that is too long is skipped.
func scanLines(in io.Reader, visit func(line string)) error {
	b := bufio.NewReaderSize(in, 16<<10)
	for long := false; ; {
		line, more, err := b.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !long && !more {
			visit(string(line))
		}
		long = more
	}
}

func scanDpkg(in io.Reader) (found string, err error) {
	name, version, installed := "", "", false
	end := func() {
		if installed && slices.Contains(kubeletPackages, name) && version != "" {
			found = version
		}
		name, version, installed = "", "", false
	}
	err = scanLines(in, func(line string) {
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "":
			end()
		case "Package":
			name = value
		case "Version":
			version = value
		case "Status":
			installed = strings.HasSuffix(value, " installed")
		}
	})
	end()
	return upstreamVersion(found), err
}

func scanApk(in io.Reader) (found string, err error) {
	name := ""
	err = scanLines(in, func(line string) {
		if v, ok := strings.CutPrefix(line, "P:"); ok {
			name = v
		} else if v, ok := strings.CutPrefix(line, "V:"); ok && slices.Contains(kubeletPackages, name) {
			found = v
		}
	})
	return upstreamVersion(found), err
}

// upstreamVersion is the version of a package without its epoch and its release.
func upstreamVersion(v string) string {
	if _, rest, ok := strings.Cut(v, ":"); ok {
		v = rest
	}
	v, _, _ = strings.Cut(v, "-")
	return v
}

var (
	sqliteMagic = []byte("SQLite format 3\x00")
	// rpmKubelet is the beginning of a package's strings in the database of rpm: the locale
	// C, the name, the version.
	rpmKubelet = regexp.MustCompile(`C\x00(?:kubelet|kubernetes-node|kubernetes1\.\d{1,3})\x00(1\.\d{1,3}\.\d{1,3})\x00`)
)

// rpmWindow is how much of a database is searched at once; rpmOverlap is more than a match has.
const (
	rpmWindow  = 256 << 10
	rpmOverlap = 128
)

// scanRPM finds the kubelet in a database of rpm in SQLite, and nothing in another file. It does
// not read the database as such: a package whose strings cross a page is not found.
func scanRPM(in io.Reader) (string, error) {
	magic := make([]byte, len(sqliteMagic))
	if _, err := io.ReadFull(in, magic); err != nil || !bytes.Equal(magic, sqliteMagic) {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		return "", err
	}
	window := make([]byte, 0, rpmWindow+rpmOverlap)
	for found := ""; ; {
		n, err := io.ReadFull(in, window[len(window):rpmWindow+len(window)])
		window = window[:len(window)+n]
		for _, m := range rpmKubelet.FindAllSubmatch(window, -1) {
			found = string(m[1])
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		window = window[:copy(window[:cap(window)], window[len(window)-rpmOverlap:])]
	}
}

// fill fills in the facts.
func (m merged) fill(f *osimage.ImageFacts) {
	f.Kernels = m.kernels()
	f.OS = osName(m.text("etc/os-release", "usr/lib/os-release"))
	f.EtcTransient = osimage.EtcTransient(m.text("etc/ostree/prepare-root.conf", "usr/lib/ostree/prepare-root.conf"))
	f.LocalOutside = m["usr/local"].kind == Symlink && strings.Contains(m["usr/local"].link, "var")
	f.Kubelet = m.firstProgram(append([]string{"kubelet"}, slices.Sorted(maps.Keys(osimage.KubeletPrograms()))...))
	f.Supervised = f.Kubelet != "" && osimage.IsSupervisor(path.Base(f.Kubelet))
	f.Runtime = m.firstProgram(osimage.RuntimePrograms())
	f.Agent = m.firstProgram([]string{osimage.AgentProgram})
	f.WithoutSELinux = m.withoutSELinux()
	_, f.Systemd = m[systemdPath]
	f.Init = m.otherInit()
	for _, db := range slices.Sorted(maps.Keys(databases)) {
		f.KubeletVersion = cmp.Or(f.KubeletVersion, m[db].version)
	}
	m.units(f)
	for _, at := range slices.Sorted(maps.Keys(m)) {
		if path.Dir(at) == boundDir {
			f.Bound = append(f.Bound, path.Base(at))
		}
		if name, ok := strings.CutPrefix(at, extensionFiles); ok {
			f.Extensions = append(f.Extensions, name)
		}
	}
}

// withoutSELinux reports that no policy is there, or none is on. A configuration whose text is not
// known, such as a hard link, says neither.
func (m merged) withoutSELinux() bool {
	config, ok := m[selinuxConfig]
	if !ok || config.text == "" {
		return !ok
	}
	text := []byte(config.text)
	_, has := m[path.Join(path.Dir(selinuxConfig), fsutil.PolicyName(text, nil), contextsFile)]
	return !has || !fsutil.PolicyIsOn(text)
}

// otherInit is what /sbin/init starts, if that is not systemd.
func (m merged) otherInit() string {
	e, ok := m[initPath]
	if !ok || e.kind == Symlink && strings.HasSuffix(e.link, "systemd") {
		return ""
	}
	return cmp.Or(e.link, "a program of its own")
}

// text is the content of the first file that is there; a link counts as the next one, which
// is what it names in every image.
func (m merged) text(paths ...string) string {
	for _, p := range paths {
		if e, ok := m[p]; ok && e.kind == File {
			return e.text
		}
	}
	return ""
}

// firstProgram finds the first of some programs that is there.
func (m merged) firstProgram(names []string) string {
	for _, name := range names {
		for _, dir := range osimage.ProgramDirs() {
			if e, ok := m[dir+"/"+name]; ok && e.kind != Other {
				return e.path
			}
		}
	}
	return ""
}

func (m merged) kernels() (out []osimage.Kernel) {
	for _, at := range slices.Sorted(maps.Keys(m)) {
		version, file, ok := kernelOf(at)
		if !ok || file != "vmlinuz" {
			continue
		}
		k := osimage.Kernel{Version: version, Size: m[at].size}
		if e, ok := m[path.Join(modulesDir, version, "initramfs.img")]; ok {
			k.Initramfs = true
			k.Size += e.size
		}
		out = append(out, k)
	}
	return out
}

// units adds the units that count: a link to /dev/null masks the others of its name.
func (m merged) units(f *osimage.ImageFacts) {
	seen := map[string]bool{}
	for _, dir := range unitDirs {
		for _, at := range slices.Sorted(maps.Keys(m)) {
			name := path.Base(at)
			if path.Dir(at) != dir || seen[name] {
				continue
			}
			seen[name] = true
			if m[at].link == "/dev/null" {
				f.Masked = append(f.Masked, name)
			} else {
				f.Units = append(f.Units, name)
			}
		}
	}
	slices.Sort(f.Units)
	slices.Sort(f.Masked)
}

// osName is the name and version in os-release.
func osName(text string) string {
	var id, version string
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			id = value
		case "VERSION_ID":
			version = value
		}
	}
	out := strings.TrimSpace(id + " " + version)
	if len(out) > maxOSName || strings.ContainsFunc(out, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return out
}

// maxOSName bytes of a name that is kept.
const maxOSName = 128
