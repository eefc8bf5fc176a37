package vsphere

import (
	"archive/tar"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/refit-dev/refit/providers/cloud"
)

// archive is an OVA: a tar file of a descriptor and disks.
type archive struct {
	path string
	// name of the descriptor.
	name       string
	descriptor []byte
	members    map[string]member
}

// member is a file of an OVA: where it starts, and its sums.
type member struct {
	offset, size int64
	sha1, sha256 string
}

// maxDescriptor is the size of the largest descriptor, in bytes.
const maxDescriptor = 4 << 20

// readArchive reads an OVA once. It compares the whole file with the SHA-256 that was verified,
// so that the sums of its members are those of the same bytes.
func readArchive(p cloud.Payload) (*archive, error) {
	f, err := p.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a := &archive{path: p.Path, members: map[string]member{}}
	counted := &counter{r: f}
	t := tar.NewReader(counted)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Path, err)
		}
		if err := a.addMember(h, t, counted.n); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", p.Path, h.Name, err)
		}
	}
	if _, err := io.Copy(io.Discard, counted); err != nil { // the padding
		return nil, err
	}
	if a.descriptor == nil {
		return nil, fmt.Errorf("%s has no descriptor (.ovf): it is no OVA", p.Path)
	}
	return a, nil
}

func (a *archive) addMember(h *tar.Header, r io.Reader, offset int64) error {
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	if strings.HasSuffix(h.Name, ".ovf") && a.descriptor == nil {
		if h.Size > maxDescriptor {
			return fmt.Errorf("it has %d bytes, at most %d are read", h.Size, maxDescriptor)
		}
		data, err := io.ReadAll(r)
		a.name, a.descriptor = h.Name, data
		return err
	}
	one, two := sha1.New(), sha256.New()
	if _, err := io.Copy(io.MultiWriter(one, two), r); err != nil {
		return err
	}
	a.members[h.Name] = member{offset: offset, size: h.Size, sha1: hexSum(one), sha256: hexSum(two)}
	return nil
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// open returns a member, compared while it is read.
func (a *archive) open(name string) (io.ReadCloser, error) {
	m, ok := a.members[name]
	if !ok {
		return nil, errors.New("the OVA does not have it")
	}
	f, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	return cloud.Check(section{io.NewSectionReader(f, m.offset, m.size), f}, m.size, m.sha256), nil
}

type section struct {
	io.Reader
	io.Closer
}

// counter counts the bytes that were read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
