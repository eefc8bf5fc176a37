package nodefiles

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

func digestOf(f *os.File) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// Digests caches the digests of large files while the files do not change, because the agent
// observes the node every few seconds. The cache is in memory.
type Digests struct {
	mu   sync.Mutex
	seen map[string]remembered
}

type remembered struct{ stat, digest string }

// DigestOf returns the digest of a file, fs.ErrNotExist if there is none.
func (d *Digests) DigestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	key := fmt.Sprint(st.Size(), st.ModTime().UnixNano())
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		key += fmt.Sprint(" ", sys.Dev, sys.Ino, sys.Ctim.Sec, sys.Ctim.Nsec)
	}
	d.mu.Lock()
	have, ok := d.seen[path]
	d.mu.Unlock()
	if ok && have.stat == key {
		return have.digest, nil
	}
	digest, err := digestOf(f)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[string]remembered{}
	}
	d.seen[path] = remembered{key, digest}
	return digest, nil
}
