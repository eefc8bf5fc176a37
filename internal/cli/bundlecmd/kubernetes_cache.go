package bundlecmd

import (
	"bufio"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
)

const (
	// partialSuffix marks what is not complete in the cache.
	partialSuffix = ".partial"
	// maxSums bounds a file of checksums in bytes.
	maxSums = 4 << 20
	// notVerified is the check of a program without a published checksum.
	notVerified = "no checksum found"
)

// programCache has downloaded and unpacked programs, by the digest of their bytes, below the
// cache directory of the user. Everything in it can be removed while no refit uses it.
type programCache struct {
	dir    string
	unlock func()
}

// subdir is the path of an entry; the first call creates the cache and locks it.
func (c *programCache) subdir(name string) (string, error) {
	if c.dir != "" {
		return filepath.Join(c.dir, name), nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache for the programs of Kubernetes: %w", err)
	}
	dir := filepath.Join(base, "refit", "kubernetes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cache for the programs of Kubernetes: %w", err)
	}
	if c.unlock, err = fsutil.Lock(filepath.Join(dir, "lock")); errors.Is(err, fsutil.ErrLocked) {
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("%s is in use by another refit bundle create: wait until it ends", dir))
	}
	if err != nil {
		return "", err
	}
	c.dir = dir
	return filepath.Join(dir, name), nil
}

func (c *programCache) close() {
	if c.unlock != nil {
		c.unlock()
	}
}

// executable is a program that the user may run: the file itself, or a copy of one that a
// download left without the permission.
func (c *programCache) executable(file string) (string, error) {
	st, err := os.Stat(file)
	if err != nil || st.Mode()&0o111 != 0 {
		return file, err
	}
	digest, err := fsutil.Digest(file)
	if err != nil {
		return "", err
	}
	dir, err := c.subdir("sha256-" + strings.TrimPrefix(digest, "sha256:"))
	if err != nil {
		return "", err
	}
	copied := filepath.Join(dir, filepath.Base(file))
	if have, err := fsutil.Digest(copied); err == nil && have == digest {
		return copied, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := fsutil.OpenRegular(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return copied, saveProgram(copied, f)
}

// saveProgram writes a program that is complete, or not there.
func saveProgram(path string, r io.Reader) error {
	f, err := os.OpenFile(path+partialSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	return commitProgram(f, path, 0o755)
}

// commitProgram gives a complete file its name.
func commitProgram(f *os.File, path string, mode fs.FileMode) error {
	if err := errors.Join(f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return fsutil.SyncDir(filepath.Dir(path))
}

// checksum is the published checksum of a file.
type checksum struct {
	algorithm, sum string
	// origin is the file that has it.
	origin string
}

// sumAlgorithms are those of published checksums: the suffix of a file next to the program,
// the name of a list, and its name for people.
var sumAlgorithms = []struct {
	suffix, list, name string
	size               int
	hash               func() hash.Hash
}{
	{".sha256", "SHA256SUMS", "SHA-256", sha256.Size, sha256.New},
	{".sha512", "SHA512SUMS", "SHA-512", sha512.Size, sha512.New},
}

// verifySums compares a file with every checksum that is published next to it: NAME.sha256,
// NAME.sha512, or a list in its directory or in root. check is for people.
func verifySums(file, root string) (check string, err error) {
	all, err := findSums(file, root)
	if err != nil {
		return "", err
	}
	return verifyAll(file, all)
}

// verifyAll compares a file with checksums. check is for people.
func verifyAll(file string, all []checksum) (check string, err error) {
	check = notVerified
	for _, want := range all {
		if err := want.verify(file); err != nil {
			return "", err
		}
		check = want.algorithm + " verified"
	}
	return check, nil
}

func findSums(file, root string) (all []checksum, err error) {
	for _, a := range sumAlgorithms {
		text, err := readSums(file + a.suffix)
		if err != nil {
			return nil, err
		}
		if text != "" {
			sum := parseSum(text, a.size)
			if sum == "" {
				return nil, console.UsageErrorf("%s has no %s checksum: copy it again, or remove it", file+a.suffix, a.name)
			}
			all = append(all, checksum{a.name, sum, file + a.suffix})
		}
		dirs := []string{filepath.Dir(file), filepath.Clean(root)}
		for _, dir := range slices.Compact(dirs) {
			list := filepath.Join(dir, a.list)
			text, err := readSums(list)
			if err != nil {
				return nil, err
			}
			rel, err := filepath.Rel(dir, file)
			if err != nil {
				return nil, err
			}
			if sum := findSum(text, filepath.ToSlash(rel), a.size); sum != "" {
				all = append(all, checksum{a.name, sum, list})
			}
		}
	}
	return all, nil
}

// readSums reads a file of checksums, "" if there is none.
func readSums(file string) (string, error) {
	b, err := fsutil.ReadSmall(file, maxSums)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("checksums: %w", err)
	}
	return string(b), nil
}

var hexSum = regexp.MustCompile(`^[0-9a-fA-F]+$`)

// parseSum reads a checksum of size bytes from a file about one file: the sum alone, or with
// a name behind it; "" if there is none.
func parseSum(text string, size int) string {
	words := strings.Fields(text)
	if len(words) == 0 || len(words[0]) != hex.EncodedLen(size) || !hexSum.MatchString(words[0]) {
		return ""
	}
	return strings.ToLower(words[0])
}

// findSum reads the checksum of a file from a list as sha256sum writes it; "" if it has none.
func findSum(list, name string, size int) string {
	for s := bufio.NewScanner(strings.NewReader(list)); s.Scan(); {
		sum, rest, _ := strings.Cut(strings.TrimSpace(s.Text()), " ")
		listed := strings.TrimPrefix(strings.TrimLeft(rest, " *"), "./")
		if listed == name {
			return parseSum(sum, size)
		}
	}
	return ""
}

// verify compares a file with the checksum.
func (c *checksum) verify(file string) error {
	f, err := fsutil.OpenRegular(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var h hash.Hash
	for _, a := range sumAlgorithms {
		if a.name == c.algorithm {
			h = a.hash()
		}
	}
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != c.sum {
		return sumMismatch(file, c, got)
	}
	return nil
}

func sumMismatch(file string, want *checksum, got string) error {
	return console.WithExit(console.ExitVerification, fmt.Errorf("%s: its %s is %s, but %s has %s: the file is damaged or another one. Download both again",
		file, want.algorithm, got, want.origin, want.sum))
}
