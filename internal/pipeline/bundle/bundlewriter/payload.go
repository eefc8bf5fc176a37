package bundlewriter

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"io"
	"regexp"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func digestOf(s string) digest.Digest { return digest.Digest(s) }

// inspectPayload reads a payload's file once: digest, and what it says of
// itself. It is never run: it may be for another machine, or hostile.
func inspectPayload(src Source) (payloadRoot, error) {
	p := payloadRoot{name: src.As, version: src.Version, store: fileStore(src.Path), explicit: true}
	if !bundle.ValidName(p.name) {
		return p, inputf("payload name %q: use lower-case letters, digits, dots, dashes and underscores, at most 63", p.name)
	}
	if p.version != "" && !bundle.ValidVersion(p.version) {
		return p, inputf("payload %s: version %q is not a semantic version, for example v1.36.3", p.name, p.version)
	}
	if err := p.readFile(src.Path); err != nil {
		return p, err
	}
	if p.version == "" && needsVersion(p.name) {
		return p, inputf("payload %s: %s does not say its version: write payload:%s@vX.Y.Z=%s", p.name, src.Path, p.name, src.Path)
	}
	return p, nil
}

func (p *payloadRoot) readFile(path string) error {
	f, err := fsutil.OpenRegular(path)
	if err != nil {
		return inputf("payload %s: %w", p.name, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return inputf("payload %s: %w", p.name, err)
	}
	p.mode = 0o644
	if st.Mode()&0o111 != 0 {
		p.mode = 0o755
	}
	h := sha256.New()
	if p.size, err = io.Copy(h, f); err != nil {
		return inputf("payload %s: %w", p.name, err)
	}
	p.digest = bundle.FormatDigest([bundle.HashSize]byte(h.Sum(nil)))
	p.platform = ProgramPlatform(f)
	if p.name == bundle.PayloadCNIPlugins {
		p.platform = pluginsPlatform(f, p.size)
	}
	if p.name == bundle.PayloadRefitChart {
		if p.version, err = chartVersion(f, p.size); err != nil {
			return inputf("payload %s: %s: %w", p.name, path, err)
		}
	}
	if p.version == "" {
		p.version = goVersion(f)
	}
	return nil
}

// needsVersion lists the payloads whose version decides what Kubernetes
// version the bundle brings.
func needsVersion(name string) bool {
	return name == bundle.PayloadKubelet || name == bundle.PayloadKubeadm || isDistribution(name)
}

// isDistribution reports whether a payload is the one program of a distribution, which has
// Kubernetes inside.
func isDistribution(name string) bool {
	return name == distribution.K3s || name == distribution.RKE2 || name == distribution.K0s
}

// ProgramPlatform is the platform of a Linux program, "" for other files.
func ProgramPlatform(r io.ReaderAt) string {
	if p, _ := fsutil.ReadProgram(r); p.Architecture != "" {
		return "linux/" + p.Architecture
	}
	return ""
}

// maxPlugins bounds the files of a tar that are checked for a program.
const maxPlugins = 64

// pluginsPlatform is the platform of the first program in a tar, compressed by gzip or not;
// "" if there is none.
func pluginsPlatform(r io.ReaderAt, size int64) string {
	raw := bufio.NewReader(io.NewSectionReader(r, 0, size))
	var in io.Reader = raw
	if magic, err := raw.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(raw)
		if err != nil {
			return ""
		}
		in = z
	}
	tr := tar.NewReader(in)
	for range maxPlugins {
		if _, err := tr.Next(); err != nil {
			return ""
		}
		head := make([]byte, fsutil.ELFHeaderSize)
		n, _ := io.ReadFull(tr, head) // a file that cannot be read is no program
		if p := ProgramPlatform(bytes.NewReader(head[:n])); p != "" {
			return p
		}
	}
	return ""
}

var versionFlag = regexp.MustCompile(`-X '?"?[^ =]*\.(?:gitVersion|[vV]ersion)=(v?[0-9]+\.[0-9]+\.[0-9]+[^ '"]*)`)

// goVersion is the version in a Go program's build information: set by a
// linker flag, else that of its main module; "" if there is none.
func goVersion(r io.ReaderAt) string {
	info, err := buildinfo.Read(r)
	if err != nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key != "-ldflags" {
			continue
		}
		if m := versionFlag.FindStringSubmatch(s.Value); m != nil && bundle.ValidVersion(m[1]) {
			return m[1]
		}
	}
	v := info.Main.Version
	if !bundle.ValidVersion(v) || strings.HasPrefix(v, "v0.0.0-") { // a commit, not a release
		return ""
	}
	return v
}
