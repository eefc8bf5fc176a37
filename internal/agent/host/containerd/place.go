package containerd

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/fsutil"
)

// visibleBlobs is the runtime's directory of blobs, or "" if this process does not see it: the
// runtime may have a mount namespace of its own. known is a blob that the runtime has.
func visibleBlobs(root string, known ocispec.Descriptor) string {
	dir := filepath.Join(root, contentDir, string(digest.SHA256))
	st, err := os.Lstat(filepath.Join(dir, known.Digest.Encoded()))
	if err != nil || !st.Mode().IsRegular() || st.Size() != known.Size {
		return ""
	}
	return dir
}

// placeBlob puts a verified copy of a blob where the runtime keeps blobs, on disk before it has a
// name. A file system with reflinks shares the bytes; the inode is never shared, so nothing that
// happens to the runtime's file reaches the bundle store. The runtime knows nothing of the file
// until its blob is committed, and its collector removes one that never is.
func placeBlob(dir string, desc ocispec.Descriptor, blobs Blobs) error {
	r, err := blobs.Open(desc.Digest.String())
	if err != nil {
		return err
	}
	defer r.Close()
	from, ok := r.(*os.File)
	if !ok {
		return errors.ErrUnsupported
	}
	// Without a name: a crash leaves nothing.
	to, err := os.OpenFile(dir, unix.O_TMPFILE|os.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := copyVerified(to, from, desc); err != nil {
		return err
	}
	if err := to.Sync(); err != nil {
		return err
	}
	unnamed := fmt.Sprintf("/proc/self/fd/%d", to.Fd())
	if err := unix.Linkat(unix.AT_FDCWD, unnamed, unix.AT_FDCWD, filepath.Join(dir, desc.Digest.Encoded()), unix.AT_SYMLINK_FOLLOW); err != nil {
		return err
	}
	return fsutil.SyncDir(dir)
}

// copyVerified copies a blob, or has the file system share its bytes.
func copyVerified(to, from *os.File, desc ocispec.Descriptor) error {
	h := sha256.New()
	out := io.MultiWriter(to, h)
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		out = h
	}
	// More than the blob's size cannot match, and must not fill the disk.
	buf := make([]byte, placeBuffer)
	if _, err := io.CopyBuffer(out, struct{ io.Reader }{io.LimitReader(from, desc.Size+1)}, buf); err != nil {
		return err
	}
	if got := digest.NewDigest(digest.SHA256, h); got != desc.Digest {
		return fmt.Errorf("blob %s: what was read has digest %s", desc.Digest, got)
	}
	return nil
}

// placeBuffer keeps calls rare and the agent small.
const placeBuffer = 256 << 10
